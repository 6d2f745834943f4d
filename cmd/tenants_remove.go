package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

const (
	// namespacePoll is the time between two looks at namespaces that are deleted, and namespacePatience how long they
	// may take.
	namespacePoll     = time.Second
	namespacePatience = 5 * time.Minute
	// deletionTries is how often a namespace is read and deleted again that another client changes meanwhile.
	deletionTries = 5
)

var _ run.Tenants = (*tenants)(nil)

// agree limits what Remove deletes to what the user has seen.
func (t *tenants) agree() {
	t.shown = map[types.UID]bool{}
	for _, c := range t.clusters {
		for _, ns := range t.own(c) {
			t.shown[ns.GetUID()] = true
		}
	}
}

// Remove deletes the namespaces of the setup with all that is in them, and waits until they are gone. Namespaces that
// were created after the user was asked are not deleted.
func (t *tenants) Remove(ctx context.Context, report func(string)) (string, error) {
	t.look(ctx)
	var problems []string
	deleted := 0
	for _, c := range t.clusters {
		if c.err != nil {
			problems = append(problems, fmt.Sprintf("cluster %s cannot be read: %s", c.name, firstLine(c.err.Error())))
			continue
		}
		own := t.own(c)
		if t.shown != nil {
			own = slices.DeleteFunc(own, func(ns unstructured.Unstructured) bool { return !t.shown[ns.GetUID()] })
		}
		if len(own) == 0 {
			continue
		}
		report("deleting " + t.describe(own) + " in cluster " + c.name)
		errs := parallel.Map(parallel.Limit, own,
			func(ns unstructured.Unstructured) error { return t.delete(ctx, c, &ns) })
		for i, err := range errs {
			if err != nil {
				problems = append(problems,
					fmt.Sprintf("namespace %s in cluster %s: %s", own[i].GetName(), c.name, firstLine(err.Error())))
			} else {
				deleted++
			}
		}
	}
	result := append([]string{plural(deleted, "namespace", "namespaces") + " removed"}, gather.Messages(problems)...)
	return strings.Join(result, "; "), ctx.Err()
}

// delete deletes a namespace of the setup, and waits until it is gone.
func (t *tenants) delete(ctx context.Context, c *tenantCluster, seen *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, namespacePatience,
		fmt.Errorf("it is deleted, and still not gone after %s", namespacePatience))
	defer cancel()
	at := namespacePlace(seen.GetName())
	for tries := 0; ; {
		live, err := c.client.Object(ctx, at)
		switch {
		case err != nil:
			return err
		case live == nil || live.GetUID() != seen.GetUID():
			return nil
		case live.GetLabels()[api.LabelSetup] != t.id:
			return fmt.Errorf("it has another value of the label %s now", api.LabelSetup)
		}
		if live.GetDeletionTimestamp() == nil {
			err := c.client.DeleteObject(ctx, at, live)
			if tries++; err != nil && !apierrors.IsNotFound(err) &&
				(!apierrors.IsConflict(err) || tries == deletionTries) {
				return err
			}
			if err == nil && tries == 1 {
				continue // an empty one can be gone at once
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(namespacePoll):
		}
	}
}

// Left returns what is still in the clusters.
func (t *tenants) Left(ctx context.Context) (out []string) {
	t.look(ctx)
	for _, c := range t.clusters {
		if c.err != nil {
			out = append(out, "what is in cluster "+c.name+", which cannot be read")
			continue
		}
		switch own := t.own(c); {
		case len(own) > 0:
			out = append(out, fmt.Sprintf("%s in cluster %s (setup ID %s)", t.describe(own), c.name, t.id))
		case t.id == "" && len(c.all) > 0:
			out = append(out, fmt.Sprintf("%s in cluster %s, of this setup or of others", t.describe(c.all), c.name))
		}
		if ns, err := c.client.Object(ctx, namespacePlace(api.NamespaceSyncer)); err != nil || ns != nil {
			out = append(out, fmt.Sprintf("namespace %s in cluster %s, which setups share",
				api.NamespaceSyncer, c.name))
		}
	}
	return out
}
