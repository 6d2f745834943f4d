package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	pollInterval = 250 * time.Millisecond
	// patience is how long kcp may refuse an object for a reason that can pass: right after a start a front-proxy does
	// not know a workspace yet (kcp#3858), and an APIExport or its APIs may not have reached the shard.
	patience = 30 * time.Second
	// typePatience is how long the type of a workspace may be missing that the controller of workloads creates, when it
	// has read the first physical cluster.
	typePatience = 5 * time.Minute
)

// stages are the kinds whose objects are applied before and after the others of their workspace. Workspaces come last,
// because they can be of a type, and their children need bindings. A Cluster needs the Secret with its credential until
// it is gone.
var stages = map[string]int{"CustomResourceDefinition": -3, "Namespace": -3, "ClusterRole": -2,
	"ClusterRoleBinding": -1, "Cluster": 1, "APIExport": 1, "APIBinding": 2, "Workspace": 3}

// apply writes the objects of a workspace, waits until its children are Ready, and writes their objects.
func (s *objects) apply(ctx context.Context, items []plan.Item, force bool, report func(string)) error {
	return inOrder(ctx, items, parentsFirst, func(ctx context.Context, it plan.Item) error {
		report := changes(report)
		if err := s.applyOne(ctx, it, force, report); err != nil {
			return err
		}
		return s.awaitWorkspace(ctx, it, report)
	})
}

// changes reports a message only if it is another one than before: objects that are applied at once wait for different
// things.
func changes(report func(string)) func(string) {
	last := ""
	return func(message string) {
		if message != last {
			last = message
			report(message)
		}
	}
}

// parentsFirst compares objects by the order in which they are applied.
func parentsFirst(a, b plan.Item) int {
	depth := func(it plan.Item) int { return strings.Count(it.Workspace, ":") }
	return cmp.Or(cmp.Compare(depth(a), depth(b)), cmp.Compare(stages[a.Kind], stages[b.Kind]))
}

// inOrder calls do for objects in an order, at once for those that are equal. When ctx ends, the errors tell what was
// waited for.
func inOrder(ctx context.Context, items []plan.Item, order func(a, b plan.Item) int,
	do func(context.Context, plan.Item) error) error {
	items = slices.SortedStableFunc(slices.Values(items), order)
	for len(items) > 0 {
		next := slices.IndexFunc(items, func(it plan.Item) bool { return order(items[0], it) != 0 })
		if next < 0 {
			next = len(items)
		}
		errs := parallel.Map(parallel.Limit, items[:next], func(it plan.Item) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, it)
		})
		if err := parallel.Join(errs); err != nil {
			return err
		}
		items = items[next:]
	}
	return nil
}

// applyOne applies an object. It waits while kcp refuses it for a reason that can pass. Objects that appeared since the
// plan was made, or that it could not compare, are compared first.
func (s *objects) applyOne(ctx context.Context, it plan.Item, force bool, report func(string)) error {
	limit := patience
	if s.forWorkloads(it.Want) {
		limit = typePatience
	}
	return s.retry(ctx, it, limit, report, func() error {
		// A new planner, because it remembers the workspaces that it has read.
		p := s.planner(force)
		live, err := p.read(ctx, it.Ref)
		if err != nil {
			return err
		}
		it.Live = live
		if err := it.CheckEnding("", nil); err != nil || it.Used && live != nil {
			return err
		}
		if err := p.fixed(it.Ref, live, it.Want); err != nil {
			return err
		}
		if c := p.foreign(it); c != nil {
			return plan.ConflictsError(c)
		}
		want, _, err := p.complete(ctx, live, it.Want, true)
		if err == nil {
			_, err = s.applyObject(ctx, it.Ref, want, false, force)
		}
		return err
	})
}

// awaitWorkspace waits until a workspace that was applied is Ready, as long as the run waits for a component.
func (s *objects) awaitWorkspace(ctx context.Context, it plan.Item, report func(string)) error {
	if it.GroupKind() != kcpapi.Workspace.GroupKind() {
		return nil
	}
	path := it.Workspace + ":" + it.Name
	err := s.client.AwaitWorkspace(ctx, it.Workspace, it.Name,
		func(reason string) { report("workspace " + path + ": " + reason) })
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	return clierr.New(clierr.NotReady,
		"see the conditions: kubectl get workspace "+it.Name+" -o yaml, in the workspace "+it.Workspace,
		"workspace %s is not Ready: %w", path, err)
}

// retry repeats a write while kcp refuses it for a reason that can pass, and reports the reason.
func (s *objects) retry(ctx context.Context, it plan.Item, limit time.Duration, report func(string),
	try func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w for %s", errPatience, limit))
	defer cancel()
	var last error
	_ = poll.Until(ctx, pollInterval, report, func() (string, error) {
		if last = try(); last == nil || !mayPass(last) {
			return "", last
		}
		return fmt.Sprintf("%s: %v", it.Ref, last), nil
	})
	return s.rejected(ctx, it, last)
}

var errPatience = errors.New("refused")

// rejected explains the last error of a write.
func (s *objects) rejected(ctx context.Context, it plan.Item, err error) error {
	if _, explained := errors.AsType[*clierr.Error](err); err == nil || explained {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errPatience) {
		return fmt.Errorf("%w: %w", cause, rejected(it, err))
	}
	return rejected(it, err)
}

// mayPass reports whether kcp may accept a request later.
func mayPass(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		errors.Is(err, kcp.ErrNotServed) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err)
}

// delete deletes objects, children before their parents, and waits until they are gone.
func (s *objects) delete(ctx context.Context, items []plan.Item) error {
	return inOrder(ctx, items, func(a, b plan.Item) int { return parentsFirst(b, a) }, s.deleteOne)
}

// deleteOne deletes an object only if it is still the one that was seen, and waits until it is gone.
func (s *objects) deleteOne(ctx context.Context, it plan.Item) error {
	at, err := s.in(it.Workspace)
	if err != nil {
		return clierr.New(clierr.Failed, hintGone(it.Workspace), "delete %s: %w", it.Ref, err)
	}
	if it.Live == nil { // it could not be read before
		if it.Live, err = at.Object(ctx, it.Ref); err != nil {
			return clierr.New(clierr.Failed, hintGone(it.Workspace), "delete %s: %w", it.Ref, err)
		}
		if it.Live == nil || !s.owns(it.Live) { // another installation can have made one of this name
			return nil
		}
	}
	asked := false
	return s.awaitGone(ctx, it.Ref, func() (*unstructured.Unstructured, error) {
		if !asked {
			if err := at.DeleteObject(ctx, it.Ref, it.Live); err != nil {
				return nil, fmt.Errorf("delete %s: %w", it.Ref, err)
			}
			asked = true
		}
		live, err := at.Object(ctx, it.Ref)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", it.Ref, err)
		}
		if live == nil || live.GetUID() != it.Live.GetUID() {
			return nil, nil
		}
		return live, nil
	})
}

// noticeAfter is how long awaitGone waits before the user is told.
const noticeAfter = 15 * time.Second

// awaitGone calls read until it returns no object. kcp may fail to answer in the meantime: a front-proxy or a shard may
// be starting again. The user is told what takes long, because a finalizer can keep an object forever.
func (s *objects) awaitGone(ctx context.Context, ref plan.Ref,
	read func() (*unstructured.Unstructured, error)) error {
	began := time.Now()
	told := ""
	return poll.Until(ctx, pollInterval, nil, func() (string, error) {
		live, err := read()
		reason := ref.String() + " to be gone"
		switch {
		case err != nil && !topology.IsKubernetes(ref.Workspace) && (retry.IsTransient(err) || shardDown(ref, err)):
			reason += "; " + err.Error()
		case err != nil || live == nil:
			return "", err
		case len(live.GetFinalizers()) > 0:
			reason += "; its finalizers are " + strings.Join(live.GetFinalizers(), ", ")
		}
		if reason != told && time.Since(began) >= noticeAfter {
			s.notify("waiting for " + reason)
			told = reason
		}
		return "wait for " + reason, nil
	})
}
