package kube

import (
	"context"
	"fmt"
	"slices"

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
		_, err = cl.Contents(ctx, cl.Namespace) // purge needs to know whether the namespace is empty
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
