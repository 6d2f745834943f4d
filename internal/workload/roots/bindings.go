package roots

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

const (
	// applyInterval is the time until a binding is looked at again whose claims kcp has not applied. Until then, nothing that is scheduled to
	// the cluster in the workspace goes there.
	applyInterval = time.Second
	// slowApplyInterval is the same for a binding that is older than slowApply.
	slowApplyInterval = 3 * time.Second
	slowApply         = time.Minute
)

// annotationRetried is the time when a binding was last changed so that kcp tries again.
const annotationRetried = api.Group + "/retried"

// bindings returns the item of the APIBindings of a logical cluster.
func bindings(cluster string) item { return item{kcpapi.APIBinding.GVR(), watch.Key{Cluster: cluster}} }

// bindAll binds the APIExports of the clusters again in all workspaces that use the published APIs.
func (s *Scheduler) bindAll() {
	for _, o := range s.set.List(kcpapi.APIBinding.GVR()) {
		s.queue.Add(bindings(watch.KeyOf(o.Unstructured).Cluster))
	}
}

// bind binds the APIExport of each cluster in a workspace that uses the published APIs: through it, the syncer of the cluster sees the
// objects with its label, and no others. It returns when to look again, or zero.
func (s *Scheduler) bind(ctx context.Context, i item) (again time.Duration, _ error) {
	s.mu.Lock()
	exports := s.exports
	s.mu.Unlock()
	all := s.set.In(kcpapi.APIBinding.GVR(), i.Cluster, "")
	if len(all) == 0 || exports == nil {
		return 0, nil
	}
	r, err := s.set.Resource(all[0].Endpoint, i.Cluster, kcpapi.APIBinding.GVR())
	if err != nil {
		return 0, err
	}
	for _, o := range all {
		name, ours := s.boundCluster(o.Unstructured)
		if !ours {
			if name == api.ExportWorkloads && !api.ClaimsApplied(o.Unstructured) {
				again = sooner(again, s.untilApplied(o.Unstructured))
				err = s.retry(ctx, r, o.Unstructured)
			}
		} else if _, wanted := exports[name]; !wanted && o.GetLabels()[api.LabelManagedBy] == api.ManagerController {
			err = r.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("APIBinding %s of workspace %s: %w", o.GetName(), i.Cluster, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		pending, err := s.bindOne(ctx, r, name, exports[name], all)
		if err != nil {
			return 0, fmt.Errorf("bind APIExport %s in workspace %s: %w", name, i.Cluster, err)
		}
		again = sooner(again, pending)
	}
	return again, nil
}

// sooner returns the shorter one of two intervals that are not zero.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// untilApplied returns the time until a binding is looked at again whose claims kcp has not applied.
func (s *Scheduler) untilApplied(b *unstructured.Unstructured) time.Duration {
	if s.Now().Sub(b.GetCreationTimestamp().Time) > slowApply {
		return slowApplyInterval
	}
	return applyInterval
}

// boundCluster returns the APIExport of a binding, and whether it is the one of a cluster.
func (s *Scheduler) boundCluster(b *unstructured.Unstructured) (name string, ours bool) {
	path, _, _ := unstructured.NestedString(b.Object, "spec", "reference", "export", "path")
	name, _, _ = unstructured.NestedString(b.Object, "spec", "reference", "export", "name")
	return name, path == s.Workspace && strings.HasPrefix(name, api.ExportCluster(""))
}

// bindOne binds the APIExport of a cluster. It returns when to look again because kcp has not applied the claims, or zero.
func (s *Scheduler) bindOne(ctx context.Context, r dynamic.ResourceInterface, export string, claims []any, all []watch.Object) (again time.Duration, _ error) {
	want := bindingTo(s.Workspace, export, claims)
	n := slices.IndexFunc(all, func(o watch.Object) bool {
		name, ours := s.boundCluster(o.Unstructured)
		return ours && name == export
	})
	if n < 0 {
		_, err := r.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
		return applyInterval, err
	}
	is := all[n].Unstructured
	want.SetName(is.GetName())
	if claimsOf(is) != claimsOf(want) {
		_, err := r.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
		return applyInterval, err
	}
	if api.ClaimsApplied(is) {
		return 0, nil
	}
	return s.untilApplied(is), s.retry(ctx, r, is)
}

// retry changes a binding so that kcp tries again to apply its claims. On a shard that has not served an API before, kcp does not find
// its informer at first, and waits longer and longer: several minutes have been seen (kcp: pkg/reconciler/apis/permissionclaimlabel).
func (s *Scheduler) retry(ctx context.Context, r dynamic.ResourceInterface, b *unstructured.Unstructured) error {
	now := s.Now()
	if at, err := time.Parse(time.RFC3339, b.GetAnnotations()[annotationRetried]); err == nil && now.Sub(at) < s.untilApplied(b) && now.After(at) {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotationRetried: now.UTC().Format(time.RFC3339)}}})
	if err != nil {
		return err
	}
	_, err = r.Patch(ctx, b.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerController})
	return err
}

// bindingTo returns the binding to the APIExport of a cluster, which accepts its claims for the objects with the label of the cluster.
func bindingTo(workspace, export string, claims []any) *unstructured.Unstructured {
	var accepted []any
	for _, c := range claims {
		claim, _ := c.(map[string]any)
		next := maps.Clone(claim)
		next["selector"], next["state"] = claim["defaultSelector"], "Accepted"
		delete(next, "defaultSelector")
		accepted = append(accepted, next)
	}
	u := kcpapi.APIBinding.New(export)
	u.Object["spec"] = map[string]any{
		"reference":        map[string]any{"export": map[string]any{"path": workspace, "name": export}},
		"permissionClaims": accepted,
	}
	u.SetLabels(map[string]string{api.LabelManagedBy: api.ManagerController})
	return u
}

// claimsOf returns the claims of a binding as a text that can be compared.
func claimsOf(b *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(b.Object, "spec", "permissionClaims")
	var out []string
	for _, c := range list {
		m, _ := c.(map[string]any)
		identity, _ := m["identityHash"].(string)
		out = append(out, fmt.Sprint(m["group"], " ", m["resource"], " ", identity, " ", m["verbs"], " ", m["state"], " ", m["selector"]))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
