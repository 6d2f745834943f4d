package shards

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// knowsAll refuses to complete what interrupted runs have begun while a registered shard is not in the setup file: it
// may have logical clusters that are closed, or the original of an incomplete copy that another shard has.
func (m *mover) knowsAll() error {
	for _, s := range m.shards {
		id := topology.ShardID(s.Name)
		if m.topology.Component(id) == nil {
			return clierr.New(clierr.Failed, "add it to spec.shards again, and rerun the command; if the shard no "+
				"longer exists, delete its Shard object in the workspace root: kubectl delete shard "+s.Name,
				"an earlier run has not finished its moves, and %s is registered and may have workspaces that are "+
					"closed, but is not in the setup file", id)
		}
	}
	return nil
}

// complete ends what interrupted runs have begun, and returns the number of moves: moves, also if one of them fails,
// and logical clusters that are closed without one.
func (m *mover) complete(ctx context.Context, to *destinations, report moveReport) (int, error) {
	begun, err := m.root.Migrating(ctx)
	if err != nil {
		return 0, err
	}
	all, err := m.locate(ctx)
	if err != nil {
		return 0, err
	}
	var moves []WorkspaceMove
	for _, b := range begun {
		moves = append(moves, to.continued(b, all))
	}
	if err := joinMoves(ctx, m.moveAll(ctx, moves, report, false)); err != nil {
		return 0, err
	}
	closed := slices.DeleteFunc(slices.Clone(all), func(l located) bool {
		return !l.Moving || slices.ContainsFunc(begun, func(b kcp.Begun) bool { return b.Cluster == l.Name })
	})
	return len(moves), m.reopen(ctx, closed, holders(all))
}

// continued returns a move that an interrupted run has begun. If kcp does not copy yet, and the logical cluster may no
// longer be on the shard that was chosen, it moves to another one.
func (d *destinations) continued(b kcp.Begun, all []located) WorkspaceMove {
	w := WorkspaceMove{Workspace: b.Cluster, Cluster: b.Cluster, To: b.Shard}
	at := slices.IndexFunc(all, func(l located) bool { return l.Name == b.Cluster && l.shard != b.Shard })
	if at < 0 {
		at = slices.IndexFunc(all, func(l located) bool { return l.Name == b.Cluster })
	}
	if at < 0 {
		return w
	}
	w.Workspace = all[at].Path
	w.From = all[at].shard
	if may, _ := d.matching(all[at].LogicalCluster, w.From); b.Held && !slices.Contains(may, b.Shard) {
		w.To = ""
		if shards, _ := d.of(all[at].LogicalCluster, w.From); len(shards) > 0 {
			w.To = shards[0]
		}
	}
	return w
}

// reopen opens logical clusters that are closed although no migration moves them: copies without an original, and
// originals. A logical cluster that several shards have remains closed: kcp would take any for the original, and it
// deletes the original when it has copied.
func (m *mover) reopen(ctx context.Context, closed []located, holders map[string][]string) error {
	twice := map[string]error{}
	for _, l := range closed {
		if shards := holders[l.Name]; len(shards) > 1 {
			twice[l.Name] = m.onSeveral(l.LogicalCluster, shards)
		} else if err := l.on.Reopen(ctx, l.Name); err != nil {
			return err
		}
	}
	var all []error
	for _, name := range slices.Sorted(maps.Keys(twice)) {
		all = append(all, twice[name])
	}
	return parallel.Join(all)
}

// onSeveral is the error for a logical cluster on several shards without a migration.
func (m *mover) onSeveral(l kcp.LogicalCluster, shards []string) error {
	return clierr.New(clierr.Failed, fmt.Sprintf("compare them (%s), delete the LogicalCluster \"cluster\" of the "+
		"incomplete one, and run the command again", m.lookInto("NAME", l.Name)),
		"%s is on shard %s, and no LogicalClusterMigration says which one is complete: it stays closed",
		l.Path, strings.Join(slices.Sorted(slices.Values(shards)), " and on shard "))
}
