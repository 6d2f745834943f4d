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

	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/facts"
	"github.com/kcpctl/kcpctl/internal/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/kube/kind"
	"github.com/kcpctl/kcpctl/internal/kube/lease"
	"github.com/kcpctl/kcpctl/internal/parallel"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// purger deletes what a deletion of the setup's objects keeps.
type purger struct {
	topology *topology.Topology
	clusters *clusters
	known    *inventory.KnownClusters
	// held returns the lock that this run holds, or nil.
	held   func() *lease.Lock
	notify cluster.Notify
}

// preflight checks, before anything is deleted, that the user may do all that purge does, and may see all that it looks
// at.
func (p *purger) preflight(ctx context.Context) error {
	return p.clusters.everywhere(ctx, func(ctx context.Context, cl *cluster.Client) error {
		ns, err := cl.ReadNamespace(ctx)
		if err != nil || ns == nil {
			return err
		}
		owned := ownsNamespace(p.topology, ns)
		err = facts.MayPurge(ctx, cl, facts.Purge{Lease: cl == p.clusters.home, Namespace: owned})
		if err != nil || !owned {
			return err
		}
		_, err = contents(ctx, cl) // purge needs to know whether the namespace is empty
		return err
	})
}

// purge deletes volumes, PKI, inventory, those namespaces that the setup has created and that hold nothing else, and
// last the lock: until then no other run can start. The home cluster comes after the others, because it has the list of
// them.
func (p *purger) purge(ctx context.Context) error {
	if err := p.clusters.everywhereElse(ctx, p.purgeCluster); err != nil {
		return err
	}
	if err := p.purgeCluster(ctx, p.clusters.home); err != nil {
		return err
	}
	if lock := p.held(); lock != nil {
		return lock.Delete(ctx)
	}
	return nil
}

// purgeCluster purges one cluster.
func (p *purger) purgeCluster(ctx context.Context, cl *cluster.Client) error {
	if err := deleteClaims(ctx, cl, selector(p.topology)); err != nil {
		return err
	}
	// The inventory comes last: if the purge is interrupted, the next one finds the rest by it.
	for _, name := range []string{p.topology.Object(pkiPart), p.topology.Object(topology.InventoryPart)} {
		o, err := cl.Get(ctx, kind.Secret, name)
		if err == nil && o != nil {
			err = cl.DeleteSeen(ctx, kind.Secret, o)
		}
		if err != nil {
			return cl.Explain(err, "delete Secret/%s/%s", cl.Namespace, name)
		}
	}
	if err := p.purgeNamespace(ctx, cl); err != nil {
		return err
	}
	return p.known.Forget(cl)
}

// purgeData deletes the volumes of a component, which no pod may use any more.
func (p *purger) purgeData(ctx context.Context, id topology.ID) error {
	component := fmt.Sprintf("%s,%s=%s,%s=%s",
		selector(p.topology), topology.LabelComponent, id.Kind(), topology.LabelName, id.Name())
	return p.clusters.everywhere(ctx, func(ctx context.Context, cl *cluster.Client) error {
		return deleteClaims(ctx, cl, component)
	})
}

// deleteClaims deletes the volume claims that a label selector selects.
func deleteClaims(ctx context.Context, cl *cluster.Client, selector string) error {
	claims, err := cl.List(ctx, kind.PersistentVolumeClaim, selector)
	if err != nil {
		return err
	}
	return parallel.Each(ctx, parallel.Indices(claims), func(ctx context.Context, i int) error {
		return cl.Delete(ctx, kind.PersistentVolumeClaim, &claims[i])
	})
}

// purgeNamespace deletes the namespace if the setup has created it and only the setup's objects are in it.
func (p *purger) purgeNamespace(ctx context.Context, cl *cluster.Client) error {
	ns, err := cl.ReadNamespace(ctx)
	if err != nil || ns == nil || !ownsNamespace(p.topology, ns) {
		return err
	}
	rest, err := contents(ctx, cl)
	if err != nil {
		return err
	}
	var lock *lease.Lock // if the namespace has it
	if cl == p.clusters.home {
		lock = p.held()
		own := "Lease/" + p.topology.Object(lockPart)
		rest = slices.DeleteFunc(rest, func(o string) bool { return o == own })
	}
	if len(rest) > 0 {
		p.notify("Namespace/%s (%s) is kept: it still holds %s", cl.Namespace, cl.Where(), rest[0])
		return nil
	}
	if lock != nil {
		lock.ExpectDeletion()
	}
	if err := cl.DeleteSeen(ctx, kind.Namespace, ns); err != nil {
		return cl.Explain(err, "delete Namespace/%s", cl.Namespace)
	}
	if lock != nil {
		lock.StopRenewing() // no run can create anything in a namespace that is being deleted
	}
	return cl.WaitGone(ctx, kind.Namespace, ns)
}

// contents returns the objects in the setup's namespace, except those that Kubernetes creates in every namespace.
func contents(ctx context.Context, cl *cluster.Client) ([]string, error) {
	resources, err := listable(ctx, cl)
	if err != nil {
		return nil, err
	}
	found := make([][]string, len(resources))
	err = parallel.Each(ctx, parallel.Indices(resources), func(ctx context.Context, i int) error {
		l, err := cl.Resource(resources[i]).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if err != nil {
			return cl.Explain(err, "list %s", resources[i].Resource)
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

// isStandard reports whether Kubernetes creates an object in every namespace, or deletes it with other objects.
func isStandard(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "ConfigMap":
		return o.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return o.GetName() == "default"
	}
	return o.GetDeletionTimestamp() != nil || len(o.GetOwnerReferences()) > 0
}

// discoveryFormat requests discovery with the resources of all groups in one answer.
var discoveryFormat = map[string]string{"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}

// derivedKinds are those that Kubernetes derives from other objects. Losing them loses nothing.
var derivedKinds = []string{"Event", "Endpoints", "EndpointSlice", "PodMetrics"}

// listable returns the namespaced resources of a cluster that can be listed.
func listable(ctx context.Context, cl *cluster.Client) ([]schema.GroupVersionResource, error) {
	var out []schema.GroupVersionResource
	for _, path := range []string{"/api", "/apis"} {
		raw, err := cl.Read(ctx, path, discoveryFormat)
		if err != nil {
			return nil, cl.Explain(err, "list the resources of the cluster")
		}
		var groups apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(raw, &groups); err != nil {
			return nil, fmt.Errorf("read %s (%s): %w", path, cl.Where(), err)
		}
		for _, g := range groups.Items {
			if len(g.Versions) > 0 { // the first is the preferred one
				out = append(out, listableIn(g.Name, &g.Versions[0])...)
			}
		}
	}
	return out, nil
}

func listableIn(group string, v *apidiscovery.APIVersionDiscovery) []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, res := range v.Resources {
		derived := res.ResponseKind != nil && slices.Contains(derivedKinds, res.ResponseKind.Kind)
		if res.Scope == apidiscovery.ScopeNamespace && slices.Contains(res.Verbs, "list") && !derived {
			out = append(out, schema.GroupVersionResource{Group: group, Version: v.Version, Resource: res.Resource})
		}
	}
	return out
}
