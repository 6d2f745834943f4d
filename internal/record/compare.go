package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The flags that do on purpose what a comparison refuses.
const (
	FlagDataChange         = "allow-data-change"
	FlagReplaceAuthorities = "replace-authorities"
)

// CheckAuthorities refuses a PKI that is not the installation's: another one, none, or a copy from before the last rotation. One
// that is a single step of a rotation further is the installation's: the next one is trusted, or signs, or the previous one is
// dropped. store says where the PKI is.
func (r *Record) CheckAuthorities(s *pki.State, store string) error {
	if r.Empty() {
		return nil
	}
	if s.Installation.ID != "" && s.Installation.ID != r.Installation {
		return clierr.New(clierr.Failed, hintStore, "%s does not hold the PKI that installation %s uses, but that of installation %s; nothing was changed",
			store, r.Installation, s.Installation.ID)
	}
	have := s.Fingerprints()
	var differences []string
	for _, rotation := range pki.AllRotations() {
		was, ok := r.Authorities[rotation.Key()]
		if !ok {
			continue
		}
		if why := differs(was, have[rotation.Key()], r.Retired[rotation.Key()]); why != "" {
			differences = append(differences, fmt.Sprintf("    %s: %s", rotation, why))
		}
	}
	if len(differences) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, hintStore, "%s does not hold the PKI that installation %s uses; nothing was changed\n%s",
		store, r.Installation, strings.Join(differences, "\n"))
}

const hintStore = "use the PKI store that the setup was applied with (--pki-dir, spec.pki), or restore it from a backup with kcpctl certs import; " +
	"to start with other authorities, which cuts off every kubeconfig, every component and every service-account token of the present ones: --" + FlagReplaceAuthorities

// differs says why fingerprints are neither those in use nor one step of a rotation further; nothing if they are.
func differs(was, have pki.Fingerprints, retired []string) string {
	old := shared(have.All(), retired)
	switch {
	case have.Current == "":
		return fmt.Sprintf("there is none, and %s signs", short(was.Current))
	case old != "":
		return fmt.Sprintf("it has %s, which is retired, and %s signs: the store is older than that", short(old), short(was.Current))
	case have.Current == was.Current && have.Next == was.Next:
		if more := extra(have.Previous, was.Previous); more != "" {
			return fmt.Sprintf("it still trusts %s, which a rotation has dropped: the store is older than that", short(more))
		}
		return ""
	case have.Current == was.Current && was.Next == "":
		return "" // the next one is to be trusted
	case have.Current == was.Current:
		return fmt.Sprintf("%s, which is trusted and will sign, is missing: the store is older than the rotation", short(was.Next))
	case have.Current == was.Next && slices.Contains(have.Previous, was.Current):
		return "" // the next one signs
	case have.Current == was.Next:
		return fmt.Sprintf("%s, which signs, is not trusted any more: the store is two steps of a rotation ahead", short(was.Current))
	case slices.Contains(was.Previous, have.Current):
		return fmt.Sprintf("%s signed before the last rotation, and %s signs now: the store is older than the rotation", short(have.Current), short(was.Current))
	}
	return fmt.Sprintf("it is %s, and %s signs", short(have.Current), short(was.Current))
}

func shared(have, retired []string) string {
	for _, f := range have {
		if slices.Contains(retired, f) {
			return f
		}
	}
	return ""
}

func extra(have, was []string) string {
	for _, f := range have {
		if !slices.Contains(was, f) {
			return f
		}
	}
	return ""
}

// short is a fingerprint as people compare it.
func short(f string) string { return f[:min(len(f), len("sha256:")+16)] }

// CheckData refuses what would take data away from who uses it: components of the record that the setup does not have any more,
// or has elsewhere. A component for which allowed holds may change; about reports whether a component is part of the run.
func (r *Record) CheckData(want map[topology.ID]Data, about, allowed func(topology.ID) bool) error {
	var all []problem
	for _, id := range slices.Sorted(maps.Keys(r.Data)) {
		was := r.Data[id]
		now, ok := want[id]
		var p problem
		switch {
		case !about(id), was.Removed && !ok:
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
	return refuse(all)
}

// problem is why a component cannot be changed as a setup wants.
type problem struct {
	id            topology.ID
	message, hint string
	// allowable says that the user can say that it is meant.
	allowable bool
}

// refuse makes one error of problems, with the flag that does all of it on purpose.
func refuse(all []problem) error {
	var errs []error
	var ids []string
	var hints []string
	for _, p := range all {
		errs = append(errs, errors.New(p.message))
		if p.allowable {
			ids = append(ids, string(p.id))
		}
		if !slices.Contains(hints, p.hint) {
			hints = append(hints, p.hint)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	if len(ids) > 0 {
		hints = append(hints, fmt.Sprintf("where that is meant, because the data was moved or is not needed any more, say so with --%s %s", FlagDataChange, strings.Join(ids, ",")))
	}
	return clierr.New(clierr.Failed, strings.Join(hints, "; "), "%w", errors.Join(errs...))
}

// dropped refuses a component that the setup does not have any more.
func dropped(id topology.ID, was Data, want map[topology.ID]Data) problem {
	if id.Kind() == topology.Shard {
		return problem{
			message: fmt.Sprintf("%s holds workspaces (%s), and the setup does not have it any more", id, was.where()),
			hint: fmt.Sprintf("put it back into spec.shards under its name: a shard cannot be renamed; to take it out, kcpctl remove-shard %s, with --drain if it holds workspaces",
				id.Name()),
		}
	}
	if owner := ownerOf(id); id.Kind() == topology.Etcd && (owner.Kind() == topology.Shard || has(want, owner)) {
		return problem{} // told of its owner
	}
	return problem{
		message:   fmt.Sprintf("%s holds data (%s), and the setup does not have it any more", id, was.where()),
		hint:      "put it back into the setup file",
		allowable: true,
	}
}

func has(all map[topology.ID]Data, id topology.ID) bool { _, ok := all[id]; return ok }

// ownerOf is the component whose data a managed etcd holds.
func ownerOf(etcd topology.ID) topology.ID {
	switch etcd.Name() {
	case topology.RootShardName:
		return topology.ID(topology.RootShard)
	case topology.CacheName:
		return topology.ID(topology.CacheServer)
	}
	return topology.IDOf(topology.Shard, etcd.Name())
}

// returns refuses a removed shard on what it has left, if that does not fit: it was empty, but it is there.
func returns(id topology.ID, was, now Data) problem {
	if was.Members == now.Members || was.Place() != now.Place() {
		return problem{}
	}
	return problem{
		message: fmt.Sprintf("%s was removed, and its volumes are still there: they are those of %d members, and the setup wants %d", id, was.Members, now.Members),
		hint:    fmt.Sprintf("delete what it left with kcpctl remove-shard %s --purge, or set its number of members to %d", id.Name(), was.Members),
	}
}

// moved refuses a component that would start without its data.
func moved(id topology.ID, was, now Data) problem {
	switch {
	case was.Place() != now.Place() && id.Kind() == topology.RootShard:
		return problem{
			message: fmt.Sprintf("%s is on %s, and the setup places it on %s: the root workspace, the certificate authorities and the record of the installation are there",
				id, was.Place(), now.Place()),
			hint: "set spec.rootShard.cluster and the cluster's namespace back: moving the root shard is not supported",
		}
	case was.Members != now.Members && was.Place() == now.Place():
		return problem{
			message: fmt.Sprintf("%s has %d members with data, and the setup wants %d", id, was.Members, now.Members),
			hint:    "set the number of members back: a member more or less would form a cluster of its own, without the data",
		}
	}
	for _, d := range []struct{ what, was, now string }{
		{"is on", was.Place(), now.Place()},
		{"has its data in", was.Etcd, now.Etcd},
		{"has its data on", was.Volume, now.Volume},
	} {
		if d.was != d.now {
			return problem{
				message:   fmt.Sprintf("%s %s %s, and the setup wants %s: it would start without its data", id, d.what, d.was, d.now),
				hint:      "set it back",
				allowable: true,
			}
		}
	}
	return problem{}
}

// where says in a few words where data is.
func (d Data) where() string {
	out := d.Place()
	for _, more := range []string{d.Etcd, d.Volume} {
		if more != "" {
			out += ", " + more
		}
	}
	return out
}
