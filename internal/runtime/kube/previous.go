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
	unreachable []absent
	// kept are in the inventory, and no run waits for them or changes them: places that users have forgotten, and that
	// cannot be reached, and places of another installation.
	kept []inventory.Placement
}

// absent is a place that a run cannot look at.
type absent struct {
	inventory.Placement
	// why is the reason, and next is the next step.
	why, next string
	// lost means that the place may be lost for good, so that users may forget it.
	lost bool
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
	var out []inventory.Placement
	for _, a := range p.unreachable {
		out = append(out, a.Placement)
	}
	return append(out, p.kept...)
}

// absent are the places that a run cannot look at, except the ones that users have forgotten.
func (p *previousClusters) absent() []absent {
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
	now, err := p.sight(ctx, place, home)
	if err != nil {
		return err
	}
	if slices.Contains(p.forget, place.Name) && place.Forgotten == "" {
		if err := now.mayForget(place); err != nil {
			return err
		}
		place.Forgotten = p.now().UTC().Format(time.RFC3339)
		p.notifyOnce("cluster %s (context %s, namespace %s) is forgotten. The inventory keeps where it was: if a run "+
			"reaches it, the run deletes "+
			"the objects of the setup there", place.Name, place.Context, place.Namespace)
	}
	switch away := now.away; {
	case away != nil && place.Forgotten != "":
		out.kept = append(out.kept, place)
	case away != nil:
		away.Placement = place
		out.unreachable = append(out.unreachable, *away)
		if replaced && !p.installation.allowOtherCluster {
			return nil // verify refuses the cluster that has its name
		}
		p.notifyOnce("objects of the setup remain on cluster %s (context %s, namespace %s): %s; %s", place.Name,
			place.Context, place.Namespace, away.why, away.next)
	case now.owner != "":
		out.kept = append(out.kept, place)
		if place.Forgotten == "" {
			p.notifyOnce("skipping cluster %s (%s), which the setup has left: %s; if that is for good: kcpctl up "+
				"--%s %s",
				place.Name, now.cluster.Where(), now.owner, run.FlagForgetCluster, place.Name)
		}
	case now.used && now.cluster.UID == "" && place.UID != "":
		out.kept = append(out.kept, place) // it has the UID
	case now.used:
	default:
		out.found = append(out.found, now.cluster)
		if place.Forgotten != "" {
			p.notifyOnce("cluster %s (%s), which was forgotten on %s, answers: what the setup has left there is "+
				"removed",
				place.Name, now.cluster.Where(), place.Forgotten)
		}
	}
	return nil
}

// sight is the result of a search at a place.
type sight struct {
	cluster *cluster.Client
	// away is why the place cannot be looked at. Nil: it can.
	away *absent
	// used means that the setup still has the place, under another name.
	used bool
	// owner is the sign that the place belongs to another installation, or "".
	owner string
}

// sight connects to a place and looks at it.
func (p *previousClusters) sight(ctx context.Context, place inventory.Placement, home *inventory.Inventory) (
	out sight, err error,
) {
	out.cluster, err = p.client(place)
	if err != nil {
		out.away = &absent{why: fmt.Sprintf("this machine does not know it: %v", err), next: whoKnows(place, err)}
		return out, nil
	}
	cl, short, cancel := out.cluster, ctx, func() {}
	if place.Forgotten != "" {
		short, cancel = context.WithTimeout(ctx, forgottenTimeout)
	}
	err = cl.Connect(short)
	cancel()
	if err != nil || place.UID != "" && cl.UID != "" && cl.UID != place.UID {
		out.away = lost(place)
		return out, nil
	}
	if err = p.inspect(ctx, &out, place, home); cluster.IsDenied(err) {
		out.away = &absent{why: err.Error(), next: clierr.Hint(err)}
		return out, nil
	}
	return out, err
}

// inspect finds out to whom a place belongs whose cluster answers.
func (p *previousClusters) inspect(
	ctx context.Context, out *sight, place inventory.Placement, home *inventory.Inventory,
) (err error) {
	cl := out.cluster
	if out.used, err = p.stillUsed(ctx, cl); out.used || err != nil {
		return err
	}
	if cl.UID == "" && place.UID != "" {
		out.away = &absent{why: "the user may not read namespace kube-system, which identifies the cluster",
			next: "ask an administrator of the cluster for this permission"}
		return nil
	}
	if _, err := cl.ReadNamespace(ctx); errors.Is(err, cluster.ErrTerminating) {
		out.away = &absent{why: err.Error(), next: clierr.Hint(err), lost: true}
		return nil
	} else if err != nil {
		return err
	}
	there, err := p.installation.inventories.Read(ctx, cl)
	if err != nil {
		return err
	}
	if cl.UID != place.UID && (there.Owner.Installation == "" ||
		there.Owner.Installation != home.Owner.Installation) { // the inventory has no UID that could confirm it
		out.away = lost(place)
		return nil
	}
	if out.owner = p.otherOwner(there, home); out.owner != "" || there.Exists() {
		return nil
	}
	_, err = members(ctx, cl, p.installation.topology, optional(there, true)) // or the user may not see what remains
	return err
}

// lost is a place that may be lost for good.
func lost(place inventory.Placement) *absent {
	return &absent{
		why: "the cluster cannot be reached, or the context leads to another one", lost: true,
		next: fmt.Sprintf("if the cluster is lost for good: kcpctl up --%s %s", run.FlagForgetCluster, place.Name),
	}
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
func (s *sight) mayForget(place inventory.Placement) error {
	switch {
	case s.away != nil && s.away.lost, s.away == nil && s.owner != "":
		return nil
	case s.away != nil:
		return clierr.New(clierr.Failed, s.away.next,
			"whether cluster %s is lost is not known: %s", place.Name, s.away.why)
	}
	return clierr.New(clierr.Failed, fmt.Sprintf("omit --%s %s: kcpctl up deletes the objects of the setup there",
		run.FlagForgetCluster, place.Name),
		"cluster %s (%s) is not lost: it answers", place.Name, s.cluster.Where())
}

// errOnlyInventory means that neither the setup file nor an earlier run on this machine names a kubeconfig.
var errOnlyInventory = errors.New("only the inventory names it")

// client returns a client for a previous cluster: with the context that led there from this machine last, because the
// inventory keeps the first one. It reads no kubeconfig that only the inventory names, because users who may write the
// inventory would choose a file of this machine, and with it the programs that log in.
func (p *previousClusters) client(place inventory.Placement) (*cluster.Client, error) {
	known, _ := p.installation.known.Load() // verify reports a file that is invalid
	for _, k := range slices.Backward(known) {
		if place.UID == "" || k.UID != place.UID || k.Namespace != place.Namespace {
			continue
		}
		at := place
		at.Context = k.Context
		at.Kubeconfig = k.Kubeconfig
		if cl, err := p.newClient(at.Cluster()); err == nil {
			return cl, nil
		}
	}
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

// otherOwner returns the sign that the inventory of a place belongs to another installation, or "". An old Secret that
// was restored in the place can be that sign, too, so the place is not forgotten.
func (p *previousClusters) otherOwner(there, home *inventory.Inventory) string {
	name := p.installation.topology.Name
	if !there.Record.Empty() {
		return fmt.Sprintf("it has the root shard and the record of a kcp %q", name)
	}
	if is, was := there.Owner.Installation, home.Owner.Installation; is != "" && was != "" && is != was {
		return fmt.Sprintf("it belongs to another installation of kcp %q now, %s", name, is)
	}
	return ""
}

// notifyOnce reports a message that several searches find. The caller searches.
func (p *previousClusters) notifyOnce(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if !slices.Contains(p.notified, message) {
		p.notified = append(p.notified, message)
		p.notify("%s", message)
	}
}
