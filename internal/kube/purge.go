package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Purge deletes what Delete keeps: volumes, PKI, inventory, the namespaces that the setup made and that hold nothing else, and
// last of all the lock. Until then no other run can begin with what is about to go.
func (r *Runtime) Purge(ctx context.Context) error {
	ctx = quiet(ctx)
	if err := r.everywhere(ctx, func(ctx context.Context, s *site) error {
		if s == r.home {
			return nil // last, because it knows of the others
		}
		return r.purge(ctx, s)
	}); err != nil {
		return err
	}
	if err := r.purge(ctx, r.home); err != nil {
		return err
	}
	return r.purgeLock(ctx)
}

func (r *Runtime) purge(ctx context.Context, s *site) error {
	claims, err := s.list(ctx, known("PersistentVolumeClaim"), r.selector())
	if err != nil {
		return err
	}
	if err := concurrently(ctx, indices(claims), func(ctx context.Context, i int) error {
		return s.delete(ctx, known("PersistentVolumeClaim"), &claims[i])
	}); err != nil {
		return err
	}
	// The inventory comes last: it leads back here if this is interrupted.
	for _, name := range []string{r.topology.Object(pkiPart), r.topology.Object(topology.InventoryPart)} {
		o, err := s.get(ctx, known("Secret").GroupVersionKind, name)
		if err == nil && o != nil {
			err = s.deleteSeen(ctx, s.resource(known("Secret").gvr()), o)
		}
		if err != nil {
			return s.explain(err, "delete Secret/%s/%s", s.Namespace, name)
		}
	}
	if err := r.purgeNamespace(ctx, s); err != nil {
		return err
	}
	return r.forget(s)
}

// purgeLock deletes the Lease that this run holds, as it was renewed last.
func (r *Runtime) purgeLock(ctx context.Context) error {
	l := r.holding()
	if l == nil {
		return nil
	}
	l.halt()
	o := &unstructured.Unstructured{}
	o.SetName(l.lease.Name)
	o.SetUID(l.lease.UID)
	o.SetResourceVersion(l.lease.ResourceVersion)
	if err := r.home.deleteSeen(ctx, r.home.resource(leases()), o); err != nil {
		return r.home.explain(err, "delete %s", leaseName(l.lease))
	}
	return nil
}

// purgeNamespace deletes the namespace if the setup made it and nothing of anybody else is in it.
func (r *Runtime) purgeNamespace(ctx context.Context, s *site) error {
	ns, err := s.readNamespace(ctx)
	if err != nil || ns == nil || !r.made(ns) {
		return err
	}
	rest, err := s.contents(ctx)
	if err != nil {
		return err
	}
	lock := "Lease/" + r.topology.Object(lockPart)
	rest = slices.DeleteFunc(rest, func(o string) bool { return s == r.home && o == lock })
	if len(rest) > 0 {
		r.notify("Namespace/%s (%s) stays: it still holds %s", s.Namespace, s.where(), rest[0])
		return nil
	}
	return s.delete(ctx, known("Namespace"), ns)
}

// contents are the objects in a namespace, but for those that Kubernetes puts into every namespace.
func (s *site) contents(ctx context.Context) ([]string, error) {
	resources, err := s.namespaced(ctx)
	if err != nil {
		return nil, err
	}
	found := make([][]string, len(resources))
	err = concurrently(ctx, indices(resources), func(ctx context.Context, i int) error {
		l, err := s.resource(resources[i]).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if err != nil {
			return s.explain(err, "list %s", resources[i].Resource)
		}
		for j := range l.Items {
			if o := &l.Items[j]; !isStandard(o) {
				found[i] = append(found[i], o.GetKind()+"/"+o.GetName())
			}
		}
		return nil
	})
	return slices.Concat(found...), err
}

// isStandard tells whether Kubernetes puts an object into every namespace, or removes it with others.
func isStandard(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "ConfigMap":
		return o.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return o.GetName() == "default"
	}
	return o.GetDeletionTimestamp() != nil || len(o.GetOwnerReferences()) > 0
}

// namespaced are the resources of the cluster that live in namespaces and can be listed.
func (s *site) namespaced(ctx context.Context) ([]schema.GroupVersionResource, error) {
	var out []schema.GroupVersionResource
	for _, path := range []string{"/api", "/apis"} {
		raw, err := s.raw(ctx, path, map[string]string{"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"})
		if err != nil {
			return nil, s.explain(err, "find out what the namespace may hold")
		}
		var groups apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(raw, &groups); err != nil {
			return nil, fmt.Errorf("read %s (%s): %w", path, s.where(), err)
		}
		for _, g := range groups.Items {
			if len(g.Versions) > 0 { // the first is the preferred one
				out = append(out, listable(g.Name, &g.Versions[0])...)
			}
		}
	}
	return out, nil
}

// derivedKinds are what Kubernetes makes of other objects. Nobody loses any of these.
func derivedKinds() []string { return []string{"Event", "Endpoints", "EndpointSlice", "PodMetrics"} }

func listable(group string, v *apidiscovery.APIVersionDiscovery) []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, res := range v.Resources {
		derived := res.ResponseKind != nil && slices.Contains(derivedKinds(), res.ResponseKind.Kind)
		if res.Scope == apidiscovery.ScopeNamespace && slices.Contains(res.Verbs, "list") && !derived {
			out = append(out, schema.GroupVersionResource{Group: group, Version: v.Version, Resource: res.Resource})
		}
	}
	return out
}
