package shards

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/balance"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Selected moves workspaces to a shard.
type Selected struct {
	// Workspaces are paths, such as root:team, or names of logical clusters.
	Workspaces []string
	// To is the name of the shard.
	To string
	// Recursive also moves all workspaces below them.
	Recursive bool
}

func (Selected) limited(all []WorkspaceMove) []WorkspaceMove { return all }

func (s Selected) choose(w *whole) ([]WorkspaceMove, error) {
	chosen, errs := s.selected(w)
	errs = append(errs, s.destination(w))
	var out []WorkspaceMove
	for _, l := range chosen {
		if l.shard == s.To {
			continue // an earlier run has moved it
		}
		if err := s.mayMove(w, l); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, w.to.refused[l.shard])
		out = append(out, WorkspaceMove{l.Path, l.Name, l.shard, s.To})
	}
	slices.SortFunc(out, func(a, b WorkspaceMove) int { return strings.Compare(a.Workspace, b.Workspace) })
	return out, parallel.Join(errs)
}

// selected returns the logical clusters of the workspaces, each once.
func (s Selected) selected(w *whole) (out []located, errs []error) {
	seen := map[string]bool{}
	for _, name := range s.Workspaces {
		found := false
		for _, top := range w.clusters {
			if top.Path != name && top.Name != name {
				continue
			}
			found = true
			for _, l := range w.clusters {
				below := s.Recursive && strings.HasPrefix(l.Path, top.Path+":")
				if (below || l.Name == top.Name) && !seen[l.Name+" "+l.shard] {
					seen[l.Name+" "+l.shard] = true
					out = append(out, l)
				}
			}
		}
		if !found {
			errs = append(errs, clierr.New(clierr.BadInput,
				"use a path such as root:team, or the ID of a logical cluster; see kubectl get workspaces",
				"workspace %q does not exist", name))
		}
	}
	return out, errs
}

// destination returns why nothing can move to the shard.
func (s Selected) destination(w *whole) error {
	has := func(sh kcp.Shard) bool { return sh.Name == s.To }
	at := slices.IndexFunc(w.shards, has)
	switch {
	case w.ends[s.To] == nil:
		return clierr.New(clierr.BadInput, "kcpctl status lists the shards", "shard %q is not in the setup file", s.To)
	case at < 0:
		return clierr.New(clierr.Failed, "run kcpctl up first", "shard %q is not registered in kcp", s.To)
	case w.to.refused[s.To] != nil:
		return w.to.refused[s.To]
	case w.shards[at].Cordoned:
		return clierr.New(clierr.Failed, "run kcpctl uncordon "+s.To,
			"shard %q is cordoned: it accepts no workspaces", s.To)
	}
	return nil
}

// mayMove returns why a logical cluster cannot move to the shard.
func (s Selected) mayMove(w *whole, l located) error {
	reason, hint := immovable(l, holders(w.clusters)), "change what keeps it, or leave it out; nothing was changed"
	if reason == "" {
		selector, keeps := w.to.selector(l.LogicalCluster)
		at := slices.IndexFunc(w.shards, func(sh kcp.Shard) bool { return sh.Name == s.To })
		if reason = keeps; reason == "" && at >= 0 && !selector.Matches(labels.Set(w.shards[at].Labels)) {
			reason = fmt.Sprintf("its location selector %q does not match this shard", selector)
			hint = fmt.Sprintf("set a selector that matches shard %s and shard %s, or none, for the workspace in "+
				"spec.workspaces, and run kcpctl up, or set spec.location.selector of the Workspace, and run the "+
				"command again; or leave it out; nothing was changed", l.shard, s.To)
		}
		if reason == "" && l.CannotServe(s.To, w.to.started[s.To]) {
			reason = hasLeft(s.To)
		}
	}
	if reason == "" {
		return nil
	}
	return clierr.New(clierr.Failed, hint,
		"%s cannot move to shard %s: %s", l.Path, s.To, reason)
}

// immovable returns why a logical cluster cannot move now to any shard, or "".
func immovable(l located, holders map[string][]string) string {
	switch {
	case l.Workspace == (kcp.WorkspaceRef{}):
		return "it belongs to kcp, and not to a workspace"
	case len(holders[l.Name]) > 1:
		return "it is on shard " + strings.Join(holders[l.Name], " and on shard ")
	case l.Deleting:
		return "it is being deleted"
	case l.Phase != kcp.PhaseReady && !l.Moving:
		return "it is " + l.Phase
	}
	return ""
}

// Balanced moves workspaces until all shards have about as many.
type Balanced struct {
	// Within is how much shards may differ from the mean, in percent.
	Within int
	// MaxMoves is how many workspaces one run moves; 0 means no limit.
	MaxMoves int
}

func (b Balanced) limited(all []WorkspaceMove) []WorkspaceMove {
	if b.MaxMoves > 0 {
		return all[:min(b.MaxMoves, len(all))]
	}
	return all
}

// choose leaves out cordoned shards: they neither lose nor get workspaces.
func (b Balanced) choose(w *whole) ([]WorkspaceMove, error) {
	var shards []string
	var errs []error
	for _, c := range w.registered() {
		name := c.ShardName()
		if slices.ContainsFunc(w.shards, func(s kcp.Shard) bool { return s.Name == name && !s.Cordoned }) {
			shards = append(shards, name)
			errs = append(errs, w.to.refused[name])
		}
	}
	if err := parallel.Join(errs); err != nil {
		return nil, err
	}
	var all []balance.Workspace
	names, held := map[string]string{}, holders(w.clusters)
	for _, l := range w.clusters {
		if l.Deleting {
			continue
		}
		ws := balance.Workspace{Path: l.Path, Shard: l.shard}
		if _, begun := w.begun[l.Name]; !begun && immovable(l, held) == "" {
			ws.To, _ = w.to.matching(l.LogicalCluster, l.shard)
		}
		names[l.Path] = l.Name
		all = append(all, ws)
	}
	var out []WorkspaceMove
	for _, m := range balance.Plan(shards, all, b.Within) {
		out = append(out, WorkspaceMove{m.Path, names[m.Path], m.From, m.To})
	}
	return out, nil
}
