package syncer

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// confine writes the guards of the namespace of a leaf, once. An object is not written into a namespace without them.
func (s *syncer) confine(ctx context.Context, i item) error {
	g := &s.guards
	ns := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	g.mu.Lock()
	p := g.plan
	err := g.err
	known := g.cluster != nil
	has := p != nil && g.done[ns] == p.hash
	g.mu.Unlock()
	switch {
	case !known || has:
		return nil
	case err != nil:
		return fmt.Errorf("confine namespace %s of cluster %s: %w", ns, s.Cluster, err)
	case p == nil:
		return fmt.Errorf("confine namespace %s of cluster %s: its nodes are not listed yet", ns, s.Cluster)
	}
	for _, r := range guardResources {
		if spec := p.spec(r, s.Setup, i.Cluster); spec != nil {
			if err := s.applyGuard(ctx, guard{r, ns}, spec); err != nil {
				return err
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done == nil {
		g.done = map[string]uint64{}
	}
	g.done[ns] = p.hash
	return nil
}

// applyGuard writes a guard. It fails with a refusal if the syncer may not: what was promised would not hold.
func (s *syncer) applyGuard(ctx context.Context, at guard, spec map[string]any) error {
	client, err := s.below(at.GroupVersionResource, at.namespace)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(at.GroupVersion().WithKind(guardKinds[at.GroupVersionResource]))
	u.SetNamespace(at.namespace)
	u.SetName(guardName)
	u.SetLabels(map[string]string{api.LabelManagedBy: api.ManagerSyncer})
	object, err := client.Apply(ctx, guardName, u, metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	switch {
	case apierrors.IsForbidden(err):
		return &refusal{api.ReasonDenied, fmt.Sprintf(
			"the syncer may not create and patch %s in cluster %s, which confine the objects of workspaces there: grant it with kcpctl up,"+
				" or change spec.tenancy of Cluster %s: %v", at.GroupResource(), s.Cluster, s.Cluster, err)}
	case err != nil:
		return fmt.Errorf("apply %s %s/%s to cluster %s: %w", at.GroupResource(), at.namespace,
			guardName, s.Cluster, err)
	}
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	if s.guards.answers == nil {
		s.guards.answers = map[guard]answer{}
	}
	s.guards.answers[at] = answer{hashOfAll(spec), hashOfAll(object.Object["spec"])}
	return nil
}

// keepGuards restores guards that others have changed, and writes them again when the nodes or the Cluster have
// changed. It ends with the context.
func (s *syncer) keepGuards(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ticked = true
		case <-s.guards.wake:
		}
		waited := !s.guards.ready()
		s.makePlan()
		if waited && s.guards.ready() {
			s.again(namespaces)
		}
		if s.guards.takeDue() || ticked {
			s.checkGuards(ctx)
			s.contention.free(s.Now())
		}
		if !s.guards.ready() {
			continue // leaves wait: no event is to wait, too
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wakePause):
		}
	}
}

// checkGuards makes the guards of all namespaces what they should be. It needs a request only for those that are not.
func (s *syncer) checkGuards(ctx context.Context) {
	defer s.begin("the check of what confines namespaces")()
	s.guards.mu.Lock()
	p := s.guards.plan
	s.guards.mu.Unlock()
	if p == nil {
		return
	}
	exist := map[string]bool{}
	for _, ns := range s.down.List(namespaces) {
		exist[ns.GetName()] = true
		if ns.GetDeletionTimestamp() != nil {
			continue
		}
		name, workspace, failed := ns.GetName(), ns.GetLabels()[api.LabelWorkspace], false
		for _, r := range guardResources {
			if err := s.checkGuard(ctx, guard{r, name}, p.spec(r, s.Setup, workspace)); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot confine a namespace", "namespace", name)
				failed = true
			}
		}
		s.guards.checked(name, p.hash, !failed)
	}
	s.guards.keep(exist)
}

// keep forgets the namespaces that do not exist. One that the watch does not show yet gets its guards once again.
func (g *guards) keep(exist map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.done, func(namespace string, _ uint64) bool { return !exist[namespace] })
	maps.DeleteFunc(g.answers, func(at guard, _ answer) bool { return !exist[at.namespace] })
}

// checked records the result for a namespace that had its guards when something was written into it.
func (g *guards) checked(namespace string, hash uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, had := g.done[namespace]; !had {
		return
	}
	if g.done[namespace] = hash; !ok {
		delete(g.done, namespace)
	}
}

// checkGuard makes a guard what it should be. Nil means that it must not exist. Nothing is done while guards cannot be
// listed.
func (s *syncer) checkGuard(ctx context.Context, at guard, spec map[string]any) error {
	if !s.guards.live.ListedAt(watch.Source{Endpoint: s.physicalURL(), Resource: at.GroupVersionResource}) {
		return nil
	}
	live, exists := s.guards.live.Get(at.GroupVersionResource, watch.Key{Namespace: at.namespace, Name: guardName})
	if spec == nil {
		if !exists {
			return nil
		}
		return s.delete(ctx, at.GroupVersionResource, live.Unstructured)
	}
	if exists {
		is := answer{hashOfAll(spec), hashOfAll(live.Object["spec"])}
		s.guards.mu.Lock()
		known := s.guards.answers[at]
		s.guards.mu.Unlock()
		if is.sent == is.returned || is == known {
			return nil
		}
	}
	return s.applyGuard(ctx, at, spec)
}
