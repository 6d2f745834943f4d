package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// FlagReplaceAuthorities is the flag that replaces the authorities of an installation.
const FlagReplaceAuthorities = "replace-authorities"

// CheckData fails if a run would separate a component from its data: if a component of the record is no longer in the
// setup, would hold its data elsewhere, or has lost its volumes, and if a component that is not in the record finds
// volumes with data. about reports whether a component is part of the run, and allowed whether the user allows the
// change.
func (r *Record) CheckData(want map[topology.ID]Data, about, allowed func(topology.ID) bool) error {
	var all []problem
	ids := slices.Concat(slices.Collect(maps.Keys(r.Data)), slices.Collect(maps.Keys(want)))
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		was, known := r.Data[id]
		now, ok := want[id]
		var p problem
		switch {
		case !about(id), was.Removed && !ok:
		case !known:
			p = found(id, now)
		case !ok:
			p = dropped(id, was, want)
		case was.Removed:
			p = returns(id, was, now)
		default:
			p = moved(id, was, now)
		}
		if p.message != "" && !(p.allowable && allowed(id)) {
			p.id = id
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.Join(r.another(want), refuse(all))
}

// CheckUnused fails if volumes exist that no component uses. A component can have some in several places. about reports
// whether a component is part of the run, and allowed whether the user allows to leave its volumes.
func CheckUnused(volumes map[topology.ID][]Data, about, allowed func(topology.ID) bool) error {
	var all []problem
	for _, id := range slices.Sorted(maps.Keys(volumes)) {
		if !about(id) || allowed(id) {
			continue
		}
		for _, has := range volumes[id] {
			p := unused(id, has)
			p.id = id
			all = append(all, p)
		}
	}
	return refuse(all)
}

// problem is why a component cannot be changed.
type problem struct {
	id            topology.ID
	message, hint string
	// allowable is set if the user can allow the change with a flag.
	allowable bool
}

// refuse returns all problems as errors, each with its next step.
func refuse(all []problem) error {
	var errs []error
	for _, p := range all {
		hint := p.hint
		if p.allowable {
			hint += "; if this is intended, because the data was moved or is no longer needed, pass " +
				risk.DataChange.Of(clierr.IDs)
		}
		errs = append(errs, clierr.About(string(p.id), clierr.Failed, hint, "%s", p.message))
	}
	return errors.Join(errs...)
}

// another is the error of a setup that shares little with the installation. It comes first, before what the setup would
// do to the components.
func (r *Record) another(want map[topology.ID]Data) error {
	var has, lacks int
	for id, d := range r.Data {
		if d.Removed {
			continue
		}
		has++
		if _, ok := want[id]; !ok {
			lacks++
		}
	}
	if has < 3 || 2*lacks <= has { // of two, one is the root shard, which every setup has
		return nil
	}
	return clierr.New(clierr.Failed,
		"this file describes another setup of the same name: use the file of this installation, or choose the right "+
			"context and namespace; for a second kcp, change metadata.name",
		"%d of the %d components with data of installation %s are not in the setup file", lacks, has, r.Installation)
}

// dropped refuses to remove a component that is no longer in the setup.
func dropped(id topology.ID, was Data, want map[topology.ID]Data) problem {
	if id.Kind() == topology.Shard {
		return problem{
			message: fmt.Sprintf("%s holds workspaces (%s), and is no longer in the setup", id, was.where()),
			hint: fmt.Sprintf("add it to spec.shards again with the same name, because a shard cannot be renamed; "+
				"to remove it, run kcpctl remove-shard %s, with --drain if it holds workspaces",
				clierr.Names),
		}
	}
	if owner := id.EtcdOwner(); id.Kind() == topology.Etcd && (owner.Kind() == topology.Shard || has(want, owner)) {
		return problem{} // its owner is refused
	}
	return problem{
		message:   fmt.Sprintf("%s holds data (%s), and is no longer in the setup", id, was.where()),
		hint:      "add it to the setup file again",
		allowable: true,
	}
}

func has(all map[topology.ID]Data, id topology.ID) bool { _, ok := all[id]; return ok }

// returns refuses to add a removed etcd again if its volumes do not match: they are empty, but they exist.
func returns(id topology.ID, was, now Data) problem {
	if was.Members == now.Members || was.Place() != now.Place() {
		return problem{}
	}
	purge := "--purge"
	if !was.Emptied {
		purge += " " + risk.WorkspaceLoss.Flag() + ", if its workspaces may be lost"
	}
	return problem{
		message: fmt.Sprintf("%s was removed, but its volumes still exist: they belong to %d members, and "+
			"the setup has %d",
			id, was.Members, now.Members),
		hint: fmt.Sprintf("set the number of members to %d, or delete the volumes with kcpctl remove-shard %s %s",
			was.Members, id.Name(), purge),
	}
}

// moved refuses a change with which a component would start without its data.
func moved(id topology.ID, was, now Data) problem {
	switch {
	case was.Place() != now.Place() && id.Kind() == topology.RootShard:
		return problem{
			message: fmt.Sprintf("%s is on %s, and the setup places it on %s: the root workspace, the certificate authorities "+
				"and the record of the installation would stay behind",
				id, was.Place(), now.Place()),
			hint: "revert spec.rootShard.cluster and the cluster's namespace: moving the root shard is not supported",
		}
	case was.Members != now.Members && was.Place() == now.Place():
		return problem{
			message: fmt.Sprintf("%s has %d members with data, and the setup has %d", id, was.Members, now.Members),
			hint: "revert the number of members: an added or removed member would form a new cluster " +
				"without the data",
		}
	}
	for _, d := range []struct{ what, was, now string }{
		{"is on", was.Place(), now.Place()},
		{"has its data in", was.Etcd, now.Etcd},
		{"has its data on", was.Volume, now.Volume},
	} {
		if d.was != d.now {
			return problem{
				message: fmt.Sprintf("%s %s %s, and the setup has %s: it would start without its data", id,
					d.what, d.was, d.now),
				hint:      "revert the change",
				allowable: true,
			}
		}
	}
	if p := replaced(id, was, now); p.message != "" {
		return p
	}
	return lost(id, was, now)
}

// where describes in a few words where the data is.
func (d Data) where() string {
	out := d.Place()
	for _, more := range []string{d.Etcd, d.Volume} {
		if more != "" {
			out += ", " + more
		}
	}
	return out
}
