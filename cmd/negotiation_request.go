package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// withdrawTimeout is how long the withdrawal of a request may take.
const withdrawTimeout = 10 * time.Second

// refusal is the error for a request that changes nothing, because the schemas have too little in common. It is nil if
// there is none.
func (r *schemaRequest) refusal() error {
	if len(r.changes) > 0 || len(r.refused) == 0 {
		return nil
	}
	var all []error
	for _, c := range r.refused {
		all = append(all, fmt.Errorf("%s: %s", c.API, c.Refused))
	}
	if r.narrow {
		return clierr.New(clierr.Failed, "change the APIs of the cluster",
			"no common schema permits cluster %q to serve them:\n%w", r.cluster, errors.Join(all...))
	}
	return clierr.New(clierr.Failed, "see kcpctl workloads negotiate for the clusters that prevent it",
		"the schemas cannot become wider:\n%w", errors.Join(all...))
}

// question is the prompt to confirm the changes.
func (r *schemaRequest) question() string {
	apis := strings.Join(r.apis(), ", ")
	if !r.narrow {
		return fmt.Sprintf("Publish these fields of %s in all workspaces?", apis)
	}
	uses := "No object has these fields."
	if r.objects > 0 {
		uses = fmt.Sprintf("The fields of %s in %s are dropped at the next write, or it is refused. This "+
			"cannot be undone.",
			plural(r.objects, "object", "objects"), plural(r.workspaces, "workspace", "workspaces"))
	}
	return fmt.Sprintf("Make the published schemas of %s narrower, for cluster %q? %s", apis, r.cluster, uses)
}

// change requests the changes from the controller, waits until it has made them, and says what has become of the
// schemas.
func (n *negotiation) change(ctx context.Context, r *schemaRequest, yes bool) error {
	if len(r.changes) == 0 {
		return nil
	}
	for _, c := range r.refused {
		n.env.note(fmt.Sprintf("%s cannot change: %s", c.API, c.Refused))
	}
	if !yes {
		ok, err := n.env.Streams.Confirm(ctx, r.question())
		if err != nil || !ok {
			return err
		}
	}
	if err := n.request(ctx, r); err != nil {
		return err
	}
	after, err := n.published(ctx)
	if err != nil {
		return err
	}
	changed, err := negotiate.Compare(r.before, after)
	if err != nil {
		return err
	}
	return n.result(r, changed)
}

// request sets the annotation on the Cluster, and waits until the controller has removed it. A request that is not
// fulfilled is withdrawn, so that schemas do not change long after the user has asked for it.
func (n *negotiation) request(ctx context.Context, r *schemaRequest) error {
	err := n.submit(ctx, r)
	if err != nil {
		return err
	}
	wait := ctx
	if n.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, n.timeout,
			fmt.Errorf("the controller has not changed the schemas after %s", n.timeout))
		defer cancel()
	}
	if err = n.awaitRequest(wait, r); err == nil {
		return nil
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	withdrawn := "the request is withdrawn"
	if problem := n.withdraw(rest, r); problem != nil {
		withdrawn = fmt.Sprintf("the request stays, as the annotation %s (%v)", r.annotation(), problem)
	}
	if errors.Is(wait.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		return clierr.New(clierr.NotReady, "see "+n.flags.command("status")+" and "+
			n.flags.command("logs workloads/controller"), "%w; %s", err, withdrawn)
	}
	n.env.note(withdrawn)
	return err
}

// submit sets the annotation of a request, unless another one is there. The controller writes the status of the Cluster
// at any time, so a Cluster that has changed is read again.
func (n *negotiation) submit(ctx context.Context, r *schemaRequest) error {
	want := strings.Join(r.apis(), ",")
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		live, err := n.cluster(ctx, r.cluster)
		switch {
		case err != nil:
			return err
		case live == nil:
			return clierr.New(clierr.Conflict, "rerun the command", "Cluster %s in %s was deleted",
				r.cluster, n.workspace)
		}
		if have := live.Annotations[r.annotation()]; have != "" && have != want {
			return clierr.New(clierr.Conflict,
				fmt.Sprintf("remove its annotation with kubectl annotate clusters.workloads.kcp.dev %s "+
					"%s- in workspace %s",
					r.cluster, r.annotation(), n.workspace),
				"Cluster %s has a request for %s that the controller has not fulfilled", r.cluster, have)
		}
		return n.patch(ctx, r.cluster, map[string]any{"metadata": map[string]any{
			"resourceVersion": live.ResourceVersion, "annotations": map[string]any{r.annotation(): want},
		}})
	})
	if apierrors.IsConflict(err) {
		return clierr.New(clierr.Conflict, "rerun the command", "%w", err)
	}
	return err
}

// withdraw removes the annotation of a request.
func (n *negotiation) withdraw(ctx context.Context, r *schemaRequest) error {
	return n.patch(ctx, r.cluster,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{r.annotation(): nil}}})
}

// awaitRequest waits until the controller has removed the annotation of a request.
func (n *negotiation) awaitRequest(ctx context.Context, r *schemaRequest) error {
	for {
		live, err := n.cluster(ctx, r.cluster)
		switch {
		case err != nil: // kcp may answer again
		case live == nil:
			return clierr.New(clierr.Conflict, "rerun the command", "Cluster %s in %s was deleted",
				r.cluster, n.workspace)
		case live.Annotations[r.annotation()] == "":
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(drainInterval):
		}
	}
}

// result says how the published schemas have changed. It fails if one has lost fields that were not listed, or has not
// changed.
func (n *negotiation) result(r *schemaRequest, changed []negotiate.Change) error {
	by := map[string]negotiate.Change{}
	for _, c := range changed {
		by[c.API.String()] = c
	}
	var problems []error
	for _, announced := range r.changes {
		c, ok := by[announced.API.String()]
		if !ok {
			problems = append(problems, fmt.Errorf("the published schema of %s has not changed", announced.API))
			continue
		}
		what := "has " + plural(len(c.Gained), "difference", "differences") + " less to those of the clusters"
		if r.narrow {
			what = fmt.Sprintf("permits cluster %q to serve it", r.cluster)
		}
		fmt.Fprintf(n.env.Streams.Err, "the published schema of %s %s.\n", c.API, what)
		for _, d := range unannounced(c.Lost, announced.Lost) {
			problems = append(problems, fmt.Errorf("%s has also changed: %s", c.API, d))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "a cluster has changed in the meantime: see "+
		n.flags.command("workloads negotiate"), "%w", errors.Join(problems...))
}

// unannounced returns the differences that were not announced.
func unannounced(found, announced []lcd.Incompatibility) (out []lcd.Incompatibility) {
	known := map[string]bool{}
	for _, d := range announced {
		known[d.String()] = true
	}
	for _, d := range found {
		if !known[d.String()] {
			out = append(out, d)
		}
	}
	return out
}
