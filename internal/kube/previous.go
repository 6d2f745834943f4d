package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// previousClusters are the clusters that the setup has left. The home cluster's inventory has them, so that the objects
// that remain there can be deleted.
type previousClusters struct {
	installation *installation
	// newClient returns the client for a cluster.
	newClient func(topology.Cluster) (*cluster.Client, error)
	notify    cluster.Notify
	// forget are the names of clusters that are lost for good: the setup forgets what remains there.
	forget []string

	mu sync.Mutex // held during a search
	// searched means that found and unreachable are complete.
	searched    bool
	found       []*cluster.Client
	unreachable []inventory.Placement
	// notified are the messages that the user has seen: a run searches more than once.
	notified []string
}

// get returns the previous clusters that have been found.
func (p *previousClusters) get() []*cluster.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// placements are those of the clusters that cannot be reached.
func (p *previousClusters) placements() []inventory.Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unreachable
}

// reset makes the next find search again: before this run got the lock, other runs may have left a cluster.
func (p *previousClusters) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found, p.unreachable, p.searched = nil, nil, false
}

// keep replaces the clusters that have been found.
func (p *previousClusters) keep(found []*cluster.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = found
}

// find searches for the previous clusters, once. It skips a cluster that cannot be reached, and reports it.
func (p *previousClusters) find(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.searched {
		return nil
	}
	in := p.installation
	if err := in.clusters.connect(ctx); err != nil {
		return err // their UIDs identify the places that the setup still has
	}
	home, err := in.inventories.Read(ctx, in.clusters.home)
	if err != nil {
		return err
	}
	for _, place := range home.Clusters {
		if in.has(place) {
			continue
		}
		cl, err := p.newClient(place.Cluster())
		if err == nil {
			err = cl.Connect(ctx)
		}
		lost := err != nil || cl.UID != place.UID
		switch forget := slices.Contains(p.forget, place.Name); {
		case lost && forget:
			p.notifyOnce("cluster %s (context %s, namespace %s) is forgotten: if it comes back, delete the objects of the setup there",
				place.Name, place.Context, place.Namespace)
			continue
		case lost:
			p.unreachable = append(p.unreachable, place)
			p.notifyOnce("objects of the setup remain on cluster %s (context %s, namespace %s): the cluster cannot be reached, or the context "+
				"leads to another one; if the cluster is lost for good: kcpctl up --%s %s", place.Name, place.Context, place.Namespace, run.FlagForgetCluster, place.Name)
			continue
		case forget:
			return clierr.New(clierr.Failed, fmt.Sprintf("omit --%s %s: kcpctl up deletes the objects of the setup there", run.FlagForgetCluster, place.Name),
				"cluster %s (%s) is not lost: it answers", place.Name, cl.Where())
		}
		left, err := p.hasLeft(ctx, cl, home)
		if err != nil {
			return err
		}
		if left {
			p.found = append(p.found, cl)
		}
	}
	p.searched = true
	return nil
}

// hasLeft reports whether the setup has left a cluster. It has not if it still has the place under another name, and
// the cluster is none of its business if that belongs to another installation now.
func (p *previousClusters) hasLeft(ctx context.Context, cl *cluster.Client, home *inventory.Inventory) (bool, error) {
	in := p.installation
	for _, o := range in.clusters.used() {
		if same, err := in.samePlace(ctx, cl, o); same || err != nil {
			return false, err
		}
	}
	there, err := in.inventories.Read(ctx, cl)
	if err != nil {
		return false, err
	}
	if is, was := there.Owner.Installation, home.Owner.Installation; is != "" && was != "" && is != was {
		p.notifyOnce("skipping cluster %s (%s), which the setup has left: it belongs to another installation of kcp %q now, %s",
			cl.Name, cl.Where(), in.topology.Name, is)
		return false, nil
	}
	return true, nil
}

// notifyOnce reports a message that several searches find. The caller holds p.mu.
func (p *previousClusters) notifyOnce(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if !slices.Contains(p.notified, message) {
		p.notified = append(p.notified, message)
		p.notify("%s", message)
	}
}
