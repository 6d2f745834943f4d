package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
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
	if err := p.reachesAll(ctx); err != nil {
		return err
	}
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
		_, err = cl.Contents(ctx, cl.Namespace) // purge needs to know whether the namespace is empty
		return err
	})
}

// reachesAll refuses a purge while the setup has objects on a cluster that cannot be reached: the inventory is the
// only list of such clusters.
func (p *purger) reachesAll(ctx context.Context) error {
	if err := p.clusters.previous.find(ctx); err != nil {
		return err
	}
	for _, place := range p.clusters.previous.absent() {
		next := place.next
		if place.lost {
			next = fmt.Sprintf("make it reachable; or, if it is lost for good, add --%s %s", run.FlagForgetCluster,
				place.Name)
		}
		return clierr.New(clierr.Failed, next,
			"objects of the setup remain on cluster %s (context %s, namespace %s), and a purge would delete the only "+
				"list of them; the purge was not started: %s", place.Name, place.Context, place.Namespace, place.why)
	}
	return nil
}

// scope returns what purge deletes, and where: a line for each cluster.
func (p *purger) scope(ctx context.Context) ([]string, error) {
	if err := p.reachesAll(ctx); err != nil {
		return nil, err
	}
	all := p.clusters.all()
	lines := make([]string, len(all))
	err := parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) (err error) {
		lines[i], err = p.scopeOf(ctx, all[i])
		return err
	})
	return lines, err
}

func (p *purger) scopeOf(ctx context.Context, cl *cluster.Client) (string, error) {
	if err := cl.Connect(ctx); err != nil {
		return "", err
	}
	claims, err := cl.List(ctx, kind.PersistentVolumeClaim, selector(p.topology))
	if err != nil {
		return "", err
	}
	var names []string
	for i := range claims {
		names = append(names, claims[i].GetName())
	}
	what := []string{"no volumes"}
	if len(names) > 0 {
		what[0] = "PersistentVolumeClaims " + gather.Few(names, gather.Listed, ", ")
	}
	if cl == p.clusters.home {
		what = append(what, "Secrets "+p.topology.Object(pkiPart)+" and "+p.topology.Object(topology.InventoryPart))
	}
	ns, err := cl.ReadNamespace(ctx)
	if err == nil && ns != nil && ownsNamespace(p.topology, ns) {
		what = append(what, "the namespace, if nothing else is in it")
	}
	return fmt.Sprintf("cluster %s, context %s, server %s, namespace %s: %s",
		cl.Name, cl.KubeContext, cl.Config.Host, cl.Namespace, strings.Join(what, ", ")), err
}

// purge deletes volumes, PKI, inventory, the namespaces that the setup has created and that hold no other objects, and
// last the lock: until then no other run can start. The home cluster comes after the others, because it has the list of
// them.
func (p *purger) purge(ctx context.Context) error {
	if err := p.reachesAll(ctx); err != nil {
		return err
	}
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
	if err := p.purgeObjects(ctx, cl); err != nil {
		return err
	}
	if err := p.purgeNamespace(ctx, cl); err != nil {
		return err
	}
	return p.known.Forget(cl)
}

// leave purges a cluster that the setup has left, without a preflight. A namespace that the user may not delete is
// kept: no later run needs it.
func (p *purger) leave(ctx context.Context, cl *cluster.Client) error {
	if err := p.purgeObjects(ctx, cl); err != nil {
		return err
	}
	if err := p.purgeNamespace(ctx, cl); err != nil {
		if ctx.Err() != nil {
			return err
		}
		p.notify("Namespace/%s (%s) is not deleted: %v", cl.Namespace, cl.Where(), err)
	}
	return p.known.Forget(cl)
}

// purgeObjects deletes volumes, PKI and inventory on one cluster.
func (p *purger) purgeObjects(ctx context.Context, cl *cluster.Client) error {
	if err := deleteClaims(ctx, cl, selector(p.topology)); err != nil {
		return err
	}
	// The inventory comes last: if the purge is interrupted, the next one finds the rest by it.
	for _, x := range []struct {
		kind.Kind
		part string
	}{{kind.Secret, pkiPart}, {kind.ConfigMap, witnessPart}, {kind.Secret, topology.InventoryPart}} {
		name := p.topology.Object(x.part)
		o, err := cl.Get(ctx, x.Kind, name)
		if err == nil && o != nil {
			err = cl.DeleteSeen(ctx, x.Kind, o)
		}
		if err != nil {
			return cl.Explain(err, "delete %s/%s/%s", x.Kind.Kind, cl.Namespace, name)
		}
	}
	return nil
}

// purgeData deletes the volumes of a component, which pods must no longer use.
func (p *purger) purgeData(ctx context.Context, id topology.ID) error {
	component := labels.SelectorFromSet(topology.SelectorOf(p.topology.Name, id.Kind(), id.Name())).String()
	return p.clusters.everywhere(ctx, func(ctx context.Context, cl *cluster.Client) error {
		return deleteClaims(ctx, cl, component)
	})
}

// deleteClaims deletes the volume claims that a label selector selects.
func deleteClaims(ctx context.Context, cl *cluster.Client, selector string) error {
	if err := removeRestorers(ctx, cl, selector); err != nil {
		return err
	}
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
	rest, err := cl.Contents(ctx, cl.Namespace)
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
