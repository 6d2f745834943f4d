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

// The flags that allow what a comparison refuses.
const (
	FlagDataChange         = "allow-data-change"
	FlagReplaceAuthorities = "replace-authorities"
)

// CheckAuthorities fails if a PKI is not that of the installation: a different or empty one, or a copy from before the
// last rotation. A PKI may be one step of a rotation ahead of the record. store is the location of the PKI.
func (r *Record) CheckAuthorities(s *pki.State, store string) error {
	if r.Empty() {
		return nil
	}
	if s.Installation.ID != "" && s.Installation.ID != r.Installation {
		return clierr.New(clierr.Failed, hintStore,
			"%s does not hold the PKI of installation %s, but that of installation %s; nothing was changed",
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
	return clierr.New(clierr.Failed, hintStore, "%s does not hold the PKI of installation %s; nothing was changed\n%s",
		store, r.Installation, strings.Join(differences, "\n"))
}

const hintStore = "use the PKI store that the setup was applied with (--pki-dir, spec.pki), " +
	"or restore it from a backup with kcpctl certs import; to use different authorities, pass --" + FlagReplaceAuthorities +
	": all existing kubeconfigs, certificates and service-account tokens then stop working"

// differs returns why fingerprints are neither the recorded ones nor one step of a rotation ahead. It returns "" if
// they are.
func differs(was, have pki.Fingerprints, retired []string) string {
	old := firstIn(have.All(), retired, true)
	switch {
	case have.Current == "":
		return fmt.Sprintf("it is missing; the installation uses %s", short(was.Current))
	case old != "":
		return fmt.Sprintf("it has %s, which is retired; the installation uses %s: the store is older than that",
			short(old), short(was.Current))
	case have.Current == was.Current && have.Next == was.Next:
		if more := firstIn(have.Previous, was.Previous, false); more != "" {
			return fmt.Sprintf("it still trusts %s, which a rotation has removed: the store is older than the rotation",
				short(more))
		}
		return ""
	case have.Current == was.Current && was.Next == "":
		return "" // one step ahead: the next one is trusted
	case have.Current == was.Current:
		return fmt.Sprintf("the next one, %s, is missing: the store is older than the rotation", short(was.Next))
	case have.Current == was.Next && slices.Contains(have.Previous, was.Current):
		return "" // one step ahead: the next one signs
	case have.Current == was.Next:
		return fmt.Sprintf("%s, which signs, is no longer trusted: the store is two steps of a rotation ahead",
			short(was.Current))
	case slices.Contains(was.Previous, have.Current):
		return fmt.Sprintf("%s signed before the last rotation, and %s signs now: the store is older than the rotation",
			short(have.Current), short(was.Current))
	}
	return fmt.Sprintf("it is %s; the installation uses %s", short(have.Current), short(was.Current))
}

// firstIn returns the first fingerprint whose presence in others is as wanted, or "".
func firstIn(have, others []string, want bool) string {
	for _, f := range have {
		if slices.Contains(others, f) == want {
			return f
		}
	}
	return ""
}

// short returns the first characters of a fingerprint.
func short(f string) string { return f[:min(len(f), len("sha256:")+16)] }

// CheckData fails if a run would separate a component from its data: if a component of the record is no longer in the
// setup, or would hold its data elsewhere. about reports whether a component is part of the run, and allowed whether
// the user allows the change.
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

// problem is why a component cannot be changed.
type problem struct {
	id            topology.ID
	message, hint string
	// allowable is set if the user can allow the change with a flag.
	allowable bool
}

// refuse returns all problems as one error. Its hint contains the flag that allows all of them.
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
		hints = append(hints, fmt.Sprintf("if this is intended, because the data was moved or is no longer needed, pass --%s %s",
			FlagDataChange, strings.Join(ids, ",")))
	}
	return clierr.New(clierr.Failed, strings.Join(hints, "; "), "%w", errors.Join(errs...))
}

// dropped refuses to remove a component that is no longer in the setup.
func dropped(id topology.ID, was Data, want map[topology.ID]Data) problem {
	if id.Kind() == topology.Shard {
		return problem{
			message: fmt.Sprintf("%s holds workspaces (%s), and is no longer in the setup", id, was.where()),
			hint: fmt.Sprintf("add it to spec.shards again with the same name, because a shard cannot be renamed; "+
				"to remove it, run kcpctl remove-shard %s, with --drain if it holds workspaces",
				id.Name()),
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
	return problem{
		message: fmt.Sprintf("%s was removed, but its volumes still exist: they belong to %d members, and the setup has %d",
			id, was.Members, now.Members),
		hint: fmt.Sprintf("delete the volumes with kcpctl remove-shard %s --purge, or set the number of members to %d",
			id.Name(), was.Members),
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
			hint:    "revert the number of members: an added or removed member would form a new cluster without the data",
		}
	}
	for _, d := range []struct{ what, was, now string }{
		{"is on", was.Place(), now.Place()},
		{"has its data in", was.Etcd, now.Etcd},
		{"has its data on", was.Volume, now.Volume},
	} {
		if d.was != d.now {
			return problem{
				message:   fmt.Sprintf("%s %s %s, and the setup has %s: it would start without its data", id, d.what, d.was, d.now),
				hint:      "revert the change",
				allowable: true,
			}
		}
	}
	return problem{}
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
