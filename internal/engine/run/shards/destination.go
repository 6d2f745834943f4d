package shards

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// migrationGate is the feature gate of kcp for moving logical clusters.
const migrationGate = "LogicalClusterMigration"

// destinations decides which shards logical clusters may move to.
type destinations struct {
	// shards accept logical clusters, and selectors are the selectors of the Workspace objects.
	shards    []kcp.Shard
	selectors map[kcp.WorkspaceRef]labels.Selector
	// refused are the errors of the shards from and to which kcp cannot move logical clusters, by name.
	refused map[string]error
	// started is when the processes of shards with one replica have started, by name. For others, it is known when
	// only one is left.
	started map[string]string
}

// staying is a logical cluster that cannot move, with the reason.
type staying struct {
	cluster kcp.LogicalCluster
	reason  string
}

func (s staying) String() string { return s.cluster.Path + ": " + s.reason }

// destinations returns where logical clusters can move to, except to the shards that are leaving. It reads the
// Workspace objects of all shards.
func (m *mover) destinations(ctx context.Context) (*destinations, error) {
	d := &destinations{
		selectors: map[kcp.WorkspaceRef]labels.Selector{}, refused: map[string]error{}, started: map[string]string{},
	}
	for _, c := range m.registered() {
		at := slices.IndexFunc(m.shards, func(s kcp.Shard) bool { return s.Name == c.ShardName() })
		if slices.Contains(m.leaving, c.ShardName()) {
			continue
		}
		if err := m.canMigrate(ctx, c); err != nil {
			d.refused[c.ShardName()] = err
		} else if !m.shards[at].Cordoned {
			d.shards = append(d.shards, m.shards[at])
		}
		if d.refused[c.ShardName()] != nil || c.Replicated() {
			continue
		}
		var err error
		if d.started[c.ShardName()], err = m.startOf(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.ID(), err)
		}
	}
	return d, m.readSelectors(ctx, d)
}

// mayBegin refuses a number of moves while objects are written again with another key. Moves that have begun can end
// before: the rotation needs that.
func (m *mover) mayBegin(moves int) error {
	if moves == 0 || m.state.Encryption.Phase != pki.PhaseSwitch {
		return nil
	}
	return clierr.New(clierr.Failed, "run kcpctl encryption rotate first: it continues",
		"workspaces cannot move while their objects are encrypted with another key: they move as they are stored")
}

// startOf returns when the process of a shard with one replica has started.
func (m *mover) startOf(ctx context.Context, c *topology.Component) (string, error) {
	client, err := m.connect(c)
	if err != nil {
		return "", err
	}
	return client.Started(ctx)
}

// accepting returns an error if no shard accepts logical clusters.
func (d *destinations) accepting() error {
	var why []error
	for _, err := range d.refused {
		why = append(why, err)
	}
	switch {
	case len(d.shards) > 0:
		return nil
	case len(why) > 0:
		slices.SortFunc(why, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return parallel.Join(why)
	}
	return clierr.New(clierr.Failed, "add another shard, or uncordon one", "no other shard accepts workspaces")
}

func (m *mover) readSelectors(ctx context.Context, d *destinations) error {
	identity, err := workspaceIdentity(ctx, m.root)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range m.registered() {
		client, err := m.connect(c)
		if err != nil {
			return err
		}
		found, err := client.Selectors(ctx, identity)
		if err != nil {
			errs = append(errs, cannotListWorkspaces(c.ID(), err))
		}
		for ref, selector := range found {
			d.selectors[ref] = selector
		}
	}
	return parallel.Join(errs)
}

// of returns the shards that a logical cluster on a shard can move to, or why it cannot move. It moves to the root
// shard only if it matches no other shard: the root shard serves all others.
func (d *destinations) of(l kcp.LogicalCluster, from string) (shards []string, reason string) {
	if shards, reason = d.matching(l, from); len(shards) > 1 {
		shards = slices.DeleteFunc(shards, func(name string) bool { return name == topology.RootShardName })
	}
	return shards, reason
}

// matching is of, and it prefers no shard.
func (d *destinations) matching(l kcp.LogicalCluster, from string) (shards []string, reason string) {
	selector, reason := d.selector(l)
	if reason != "" {
		return nil, reason
	}
	left := ""
	for _, s := range d.shards {
		switch {
		case s.Name == from || !selector.Matches(labels.Set(s.Labels)):
		case l.CannotServe(s.Name, d.started[s.Name]):
			left = s.Name
		default:
			shards = append(shards, s.Name)
		}
	}
	switch {
	case len(shards) == 0 && left != "":
		return nil, hasLeft(left)
	case len(shards) == 0:
		return nil, fmt.Sprintf("its location selector %q matches no other shard", selector)
	}
	return shards, ""
}

// selector returns which shards a logical cluster may be on, or why it cannot move to any.
func (d *destinations) selector(l kcp.LogicalCluster) (selector labels.Selector, reason string) {
	selector = labels.Everything()
	if l.Workspace != (kcp.WorkspaceRef{}) {
		known, ok := d.selectors[l.Workspace]
		if !ok {
			return nil, "it has no Workspace object, so it is not known which shards it may be on"
		}
		selector = known
	}
	switch {
	case l.Inactive:
		return nil, "it is inactive, so kcp cannot copy it (annotation core.kcp.io/inactive of its LogicalCluster)"
	case l.Migration != "" && l.Migration != kcp.MigrationPath(l.Name):
		return nil, "LogicalClusterMigration " + l.Migration + " moves it"
	}
	return selector, ""
}

// canMigrate returns an error if logical clusters cannot be moved from or to a shard.
func (m *mover) canMigrate(ctx context.Context, c *topology.Component) error {
	const byHand = "; or move the workspaces yourself"
	if !release.Of(c.Version).Migration {
		return clierr.New(clierr.Failed, "upgrade kcp to v0.32 or later"+byHand,
			"%s runs kcp %s, which cannot move logical clusters", c.ID(), c.Version)
	}
	client, err := m.connect(c)
	if err != nil {
		return err
	}
	on, err := client.CanMigrate(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.ID(), err)
	}
	if !on {
		return clierr.New(clierr.Failed,
			fmt.Sprintf("set spec.featureGates: {%s: true} in the setup file and run kcpctl up%s",
				migrationGate, byHand),
			"the feature gate %s, which kcp needs to move logical clusters, is off on %s", migrationGate, c.ID())
	}
	return nil
}
