package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Data that is encrypted can be read only with its key. So a key that shards run with is never replaced or deleted
// because the PKI store or the record does not have it: then it may be the last copy.

// recoverKeys adds the encryption keys that shards run with, and that the PKI has lost, to a PKI that replaces the one
// of the installation.
func (p *preparation) recoverKeys(ctx context.Context, loaded *pki.State) (*pki.State, error) {
	if !p.Options.ReplaceAuthorities {
		return loaded, nil
	}
	used, places, err := p.encryptionInUse(ctx)
	if err != nil {
		return nil, err
	}
	var lost []string
	for i, u := range used {
		if missing := p.known.LostEncryptionKeys(loaded, u); len(missing) > 0 {
			lost = append(lost, places[i])
		}
	}
	if len(lost) == 0 {
		return loaded, nil
	}
	out, err := pki.RecoverEncryption(p.Topology, loaded, used)
	if err == nil && !p.again && !p.quiet {
		p.Note(fmt.Sprintf("the PKI store (%s) lacks the encryption key: it is taken from %s", p.Runtime.Store(),
			strings.Join(lost, ", ")))
	}
	return out, err
}

// notePreviousKMS says what still needs a KMS that the setup no longer has: without it, no shard becomes ready, so that
// a KMS that is lost cannot be replaced.
func (p *preparation) notePreviousKMS() {
	if p.again || p.quiet {
		return
	}
	for _, name := range p.desired.PKI.State.Encryption.PreviousKMS(p.Topology.Setup.Spec.Encryption) {
		p.Note(fmt.Sprintf("objects are still encrypted with the KMS %q, which the setup no longer has: its plugin "+
			"must answer until kcpctl encryption rotate has ended. If the KMS is lost for good, so is what it has "+
			"encrypted: see Encrypt with a KMS in docs/operations.md", name))
	}
}

// encryptionInUse returns the keys of the shards of each cluster, and the Secrets that have them, except for clusters
// that are excluded.
func (p *preparation) encryptionInUse(ctx context.Context) (all []pki.EncryptionInUse, places []string, err error) {
	var asked []plan.Ref
	for _, c := range p.Topology.Shards() {
		at := plan.Ref{Cluster: c.Cluster.Name, GroupVersionKind: kind.Secret.GroupVersionKind,
			Namespace: c.Cluster.Namespace, Name: p.Topology.Object(topology.EncryptionPart)}
		if _, left := plan.UnreachableIn(p.left, at.Cluster); left || slices.Contains(asked, at) {
			continue
		}
		asked = append(asked, at)
		found, err := p.Runtime.Find(ctx, at, "")
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			if used := render.EncryptionIn(&found[i]); len(used.Keys) > 0 {
				all, places = append(all, used), append(places, placeOf(at))
			}
		}
	}
	return all, places, nil
}

// keepsKeys refuses a plan that takes away an encryption key that shards run with, and that no rotation has removed.
func (g *guard) keepsKeys() error {
	changed := slices.DeleteFunc(slices.Clone(g.res.Plan.Items),
		func(it plan.Item) bool { return it.Action != plan.Change && it.Action != plan.Delete })
	return lostKeys(g.known, g.res.PKI.State, changed, g.Runtime.Store().String(), "nothing was changed")
}

// keepsKeys refuses to delete an encryption key that the PKI store does not have: the data is kept, and needs it.
func (d *Down) keepsKeys(ctx context.Context, known *record.Record, objects []plan.Item) error {
	encrypts := func(it plan.Item) bool { return it.Live != nil && len(render.EncryptionIn(it.Live).Keys) > 0 }
	if !slices.ContainsFunc(objects, encrypts) {
		return nil
	}
	state, err := d.Runtime.Store().Load(ctx)
	if err != nil {
		return err
	}
	return lostKeys(known, state, objects, d.Runtime.Store().String(), "nothing was removed")
}

// lostKeys fails if live objects have encryption keys that a PKI lacks, and that no rotation has removed.
func lostKeys(known *record.Record, s *pki.State, items []plan.Item, store, nothing string) error {
	removed := known.Authorities[pki.EncryptionRotation{}.Key()].Previous // a rotation ends, and is not recorded yet
	var lines []string
	for _, it := range items {
		if it.Live == nil {
			continue
		}
		if lost := known.LostEncryptionKeys(s, render.EncryptionIn(it.Live), removed...); len(lost) > 0 {
			lines = append(lines, fmt.Sprintf("    %s: %s", placeOf(it.Ref), strings.Join(lost, ", ")))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed,
		"use the latest PKI store; if it is lost, run kcpctl up --"+record.FlagReplaceAuthorities+
			", which takes the keys into the PKI store",
		"shards encrypt with keys that %s does not have: without them, the data in etcd cannot be read; %s\n%s",
		store, nothing, strings.Join(lines, "\n"))
}
