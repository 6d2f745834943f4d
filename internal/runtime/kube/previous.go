package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// previousClusters are the clusters that the setup has left. The home cluster's inventory has them, so that the objects
// that remain there can be deleted.
type previousClusters struct {
	installation *installation
	// newClient returns the client for a cluster.
	newClient func(topology.Cluster) (*cluster.Client, error)
	notify    cluster.Notify
	// forget are the names of clusters that are lost for good: runs no longer wait for them.
	forget []string
	now    func() time.Time

	search parallel.Lock // held during a search
	mu     sync.Mutex    // protects what follows
	// searched means that the results are complete.
	searched bool
	results
	// notified are the messages that the user has seen: a run searches more than once.
	notified []string
}

// results are the results of a search.
type results struct {
	found       []*cluster.Client
	unreachable []inventory.Placement
	// kept are in the inventory, and no run waits for them or changes them: places that users have forgotten, and that
	// cannot be reached, and places of another installation.
	kept []inventory.Placement
}

// get returns the previous clusters that have been found.
func (p *previousClusters) get() []*cluster.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// placements are the places that the inventory has to keep: they cannot be reached, or belong to other installations.
func (p *previousClusters) placements() []inventory.Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(p.unreachable, p.kept)
}

// lost are the placements on clusters that cannot be reached, except the ones that users have forgotten.
func (p *previousClusters) lost() []inventory.Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unreachable
}

// reset makes the next find search again: before this run got the lock, other runs may have left a cluster.
func (p *previousClusters) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = results{}
	p.searched = false
}

// keep replaces the clusters that have been found.
func (p *previousClusters) keep(found []*cluster.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = found
}

// find searches for the previous clusters, once. It skips a cluster that cannot be reached, and reports it.
func (p *previousClusters) find(ctx context.Context) error {
	if err := p.search.Lock(ctx); err != nil {
		return err
	}
	defer p.search.Unlock()
	if p.complete() {
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
	var out results
	for _, place := range home.Clusters {
		if in.has(place) && (place.Forgotten == "" || in.isOn(place)) {
			continue
		}
		var replaced bool
		place.Name, replaced = in.previousName(place)
		if err := p.look(ctx, &out, place, replaced, home); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = out
	p.searched = true
	return nil
}

// complete reports whether a search has ended.
func (p *previousClusters) complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.searched
}

// forgottenTimeout is how long a cluster that was forgotten may take to answer: it is probably gone.
const forgottenTimeout = 3 * time.Second

// look finds out whether a previous cluster can be reached, and whether the setup has left something there. replaced
// means that a cluster of the setup has its name.
func (p *previousClusters) look(ctx context.Context, out *results, place inventory.Placement, replaced bool,
	home *inventory.Inventory) error {
	cl, err := p.client(place)
	unknown := err
	if err == nil && place.Forgotten != "" {
		short, cancel := context.WithTimeout(ctx, forgottenTimeout)
		err = cl.Connect(short)
		cancel()
	} else if err == nil {
		err = cl.Connect(ctx)
	}
	lost := err != nil || cl.UID != place.UID
	var used bool
	var owner string
	if !lost {
		if used, owner, err = p.holder(ctx, cl, home); err != nil {
			return err
		}
	}
	if slices.Contains(p.forget, place.Name) && place.Forgotten == "" {
		if err := p.mayForget(place, cl, unknown, lost || owner != ""); err != nil {
			return err
		}
		place.Forgotten = p.now().UTC().Format(time.RFC3339)
		p.notifyOnce("cluster %s (context %s, namespace %s) is forgotten. The inventory keeps where it was: if a run "+
			"reaches it, the run deletes "+
			"the objects of the setup there", place.Name, place.Context, place.Namespace)
	}
	switch {
	case lost && place.Forgotten != "":
		out.kept = append(out.kept, place)
		return nil
	case lost && replaced && !p.installation.allowOtherCluster:
		out.unreachable = append(out.unreachable, place) // verify refuses the cluster that has its name
		return nil
	case lost:
		out.unreachable = append(out.unreachable, place)
		p.notifyOnce("objects of the setup remain on cluster %s (context %s, namespace %s): %s", place.Name,
			place.Context, place.Namespace, whyLost(place, unknown))
		return nil
	case owner != "" && place.Forgotten == "":
		p.notifyOnce("skipping cluster %s (%s), which the setup has left: %s; if that is for good: kcpctl up --%s %s",
			cl.Name, cl.Where(), owner, run.FlagForgetCluster, place.Name)
	case owner == "" && place.Forgotten != "":
		p.notifyOnce("cluster %s (%s), which was forgotten on %s, answers: what the setup has left there is removed",
			place.Name, cl.Where(), place.Forgotten)
	}
	switch {
	case owner != "":
		out.kept = append(out.kept, place)
	case !used:
		out.found = append(out.found, cl)
	}
	return nil
}

// holder reports whether the setup still has a place under another name, or else which other installation has it.
func (p *previousClusters) holder(ctx context.Context, cl *cluster.Client, home *inventory.Inventory) (
	used bool, owner string, err error,
) {
	if used, err = p.stillUsed(ctx, cl); used || err != nil {
		return used, "", err
	}
	owner, err = p.otherOwner(ctx, cl, home)
	return false, owner, err
}

// whyLost returns why a cluster cannot be reached, and the next step. unknown is why this machine does not know it.
func whyLost(place inventory.Placement, unknown error) string {
	if unknown != nil {
		return fmt.Sprintf("this machine does not know it: %v; %s", unknown, whoKnows(place, unknown))
	}
	return fmt.Sprintf("the cluster cannot be reached, or the context leads to another one; if the cluster is lost "+
		"for good: kcpctl up --%s %s",
		run.FlagForgetCluster, place.Name)
}

// whoKnows returns the next step for a cluster that this machine does not know, and unknown is why.
func whoKnows(place inventory.Placement, unknown error) string {
	if errors.Is(unknown, errOnlyInventory) {
		return "if you trust the kubeconfig, add the cluster with it to spec.clusters for a run"
	}
	return fmt.Sprintf("run the command on a machine whose kubeconfig has context %s; if none has it any more, add it "+
		"with the address that the cluster had", place.Context)
}

// mayForget refuses to forget a cluster that is neither lost nor another installation's, or of which that is not known.
// unknown is why this machine does not know it.
func (p *previousClusters) mayForget(place inventory.Placement, cl *cluster.Client, unknown error, lost bool) error {
	if unknown != nil {
		return clierr.New(clierr.Failed, whoKnows(place, unknown),
			"whether cluster %s is lost is not known, because this machine does not know it: %w", place.Name, unknown)
	}
	if lost {
		return nil
	}
	return clierr.New(clierr.Failed, fmt.Sprintf("omit --%s %s: kcpctl up deletes the objects of the setup there",
		run.FlagForgetCluster, place.Name),
		"cluster %s (%s) is not lost: it answers", place.Name, cl.Where())
}

// errOnlyInventory means that neither the setup file nor an earlier run on this machine names a kubeconfig.
var errOnlyInventory = errors.New("only the inventory names it")

// client returns a client for a previous cluster. It reads no kubeconfig that only the inventory names, because users
// who may write the inventory would choose a file of this machine, and with it the programs that log in.
func (p *previousClusters) client(place inventory.Placement) (*cluster.Client, error) {
	if !p.named(place.Kubeconfig) {
		return nil, fmt.Errorf("the kubeconfig %s is not read: %w", place.Kubeconfig, errOnlyInventory)
	}
	return p.newClient(place.Cluster())
}

// named reports whether a kubeconfig is kubectl's, or one that the setup file names or has named on this machine.
func (p *previousClusters) named(kubeconfig string) bool {
	if kubeconfig == "" {
		return true
	}
	for _, cl := range p.installation.clusters.current {
		if cl.Kubeconfig == kubeconfig {
			return true
		}
	}
	known, err := p.installation.known.Load()
	return err == nil && slices.ContainsFunc(known,
		func(k inventory.KnownCluster) bool { return k.Kubeconfig == kubeconfig })
}

// stillUsed reports whether the setup has a place that it has left under another name.
func (p *previousClusters) stillUsed(ctx context.Context, cl *cluster.Client) (bool, error) {
	for _, o := range p.installation.clusters.used() {
		if same, err := p.installation.samePlace(ctx, cl, o); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// otherOwner returns the sign that a place belongs to another installation, or "". An old Secret that was restored in
// the place can be that sign, too, so the place is not forgotten.
func (p *previousClusters) otherOwner(ctx context.Context, cl *cluster.Client, home *inventory.Inventory) (
	string, error,
) {
	there, err := p.installation.inventories.Read(ctx, cl)
	if err != nil {
		return "", err
	}
	name := p.installation.topology.Name
	if !there.Record.Empty() {
		return fmt.Sprintf("it has the root shard and the record of a kcp %q", name), nil
	}
	if is, was := there.Owner.Installation, home.Owner.Installation; is != "" && was != "" && is != was {
		return fmt.Sprintf("it belongs to another installation of kcp %q now, %s", name, is), nil
	}
	return "", nil
}

// notifyOnce reports a message that several searches find. The caller searches.
func (p *previousClusters) notifyOnce(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if !slices.Contains(p.notified, message) {
		p.notified = append(p.notified, message)
		p.notify("%s", message)
	}
}
