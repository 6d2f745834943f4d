package deploy

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// acceptRecord refuses a record that was restored together with its PKI, and one in the middle of a restore.
func (p *preparation) acceptRecord() error {
	if err := p.known.CheckWhole(); err != nil {
		return err
	}
	if p.Options.AllowRestoredRecord {
		return nil
	}
	return p.known.CheckRestored()
}

// identity is the identity of the installation for a PKI that has lost its own.
func (p *preparation) identity() pki.Installation {
	if !p.Options.ReplaceAuthorities {
		return pki.Installation{}
	}
	return p.known.Identity(p.Topology.Name)
}

// sameAuthorities refuses a PKI that is not the installation's.
func (p *preparation) sameAuthorities(r *record.Record, loaded *pki.State) error {
	if p.Options.ReplaceAuthorities {
		return r.CheckEncryption(loaded, p.Runtime.Store().String())
	}
	return r.CheckAuthorities(loaded, p.Runtime.Store().String(), p.Options.AllowTrustChange...)
}

// completed returns a restored record with the additional data of the live objects: the record does not know what was
// added since.
func (g *guard) completed() *record.Record {
	out := g.known.Purge() // a copy
	for id, d := range g.adopt().Data {
		if was, ok := out.Data[id]; !ok || was.Removed {
			out.Data[id] = d
		}
	}
	return out
}

// sameTrust refuses a plan if components trust a certificate or a key that neither the PKI nor the record knows: a user
// has added it, or PKI and record are older than what runs.
func (g *guard) sameTrust() error {
	if g.Options.ReplaceAuthorities {
		return nil
	}
	known := g.knownTrust()
	lines := map[string][]string{} // where a certificate is trusted
	for _, it := range g.res.Plan.Items {
		if it.Live == nil {
			continue
		}
		for key, bundle := range render.TrustIn(g.Topology, it.Live) {
			names := pki.NamesIn(bundle)
			for _, f := range pki.BundleFingerprints(bundle).All() {
				if !slices.Contains(known[key], f) && !record.Allowed(g.Options.AllowTrustChange, f) {
					line := fmt.Sprintf("    %s: %s", nameOfRotation(key), record.Describe(f, names))
					lines[line] = append(lines[line], placeOf(it.Ref))
				}
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	var all []string
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		all = append(all, line+", in "+strings.Join(lines[line], ", "))
	}
	return clierr.New(clierr.Failed,
		"if the PKI store was restored, or is a copy, use the latest one; if that is lost, add --"+
			record.FlagReplaceAuthorities+", with which components trust the store's authorities only; if a user has "+
			"added the certificate or key, find out who it was, and remove it with kcpctl up "+
			risk.TrustChange.Of("FINGERPRINT")+" for each fingerprint above",
		"components trust what neither %s nor the record of the installation knows; nothing was changed\n%s",
		g.Runtime.Store(), strings.Join(all, "\n"))
}

// knownTrust returns the fingerprints that components may trust now, by pki.Rotation.Key.
func (g *guard) knownTrust() map[string][]string {
	out := map[string][]string{}
	for _, state := range []*pki.State{g.desired.Loaded, g.desired.PKI.State} {
		for key, f := range state.Fingerprints() {
			out[key] = append(out[key], f.All()...)
		}
	}
	for _, rotation := range pki.AllRotations() {
		key := rotation.Key()
		out[key] = slices.Concat(out[key], g.known.Authorities[key].All(), g.known.Retired[key])
	}
	return out
}

func nameOfRotation(key string) string {
	for _, rotation := range pki.AllRotations() {
		if rotation.Key() == key {
			return rotation.String()
		}
	}
	return key
}

// placeOf returns an object with its cluster.
func placeOf(ref plan.Ref) string {
	if ref.Cluster == "" {
		return ref.String()
	}
	return ref.String() + " on cluster " + ref.Cluster
}

// newerLeaves refuses a plan that replaces live certificates by older ones, from an older PKI directory: they may have
// been renewed because a key was stolen.
func (g *guard) newerLeaves() error {
	if g.Options.ReplaceAuthorities {
		return nil
	}
	issued := map[pki.LeafKey]bool{}
	for _, c := range g.res.PKI.Changes {
		issued[c.Key()] = !sameLeaf(g.desired.Loaded.Leaves[c.Key()], g.res.PKI.State.Leaves[c.Key()])
	}
	var lines []string
	for _, it := range g.res.Plan.Items {
		key := pki.LeafKey{Cluster: it.Cluster, Secret: it.Name}
		stored, ok := g.res.PKI.State.Leaves[key]
		if it.Live == nil || it.Action != plan.Change || !ok || issued[key] {
			continue
		}
		live, old := notBefore(certificateIn(it.Live)), notBefore(stored.Cert)
		if old.Before(live) {
			lines = append(lines, fmt.Sprintf("    %s: the live one is of %s, and that of the store of %s",
				placeOf(it.Ref), live.Format(time.RFC3339), old.Format(time.RFC3339)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if more := len(lines) - mostLeaves; more > 0 {
		lines = append(lines[:mostLeaves], fmt.Sprintf("    and %d more", more))
	}
	return clierr.New(clierr.Failed,
		"use the latest copy of the PKI store; if it is lost, issue new certificates with kcpctl certs renew",
		"%s is older than what runs: it would replace certificates by older ones; nothing was changed\n%s",
		g.Runtime.Store(), strings.Join(lines, "\n"))
}

// mostLeaves is how many certificates a message lists.
const mostLeaves = 5

func sameLeaf(a, b pki.Pair) bool {
	x, errX := pki.Inspect(a.Cert)
	y, errY := pki.Inspect(b.Cert)
	return errX == nil && errY == nil && x.Serial == y.Serial && x.Issuer == y.Issuer
}

// certificateIn returns the certificate in a live Secret of a component; nil if there is none.
func certificateIn(o *unstructured.Unstructured) []byte {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	raw, err := base64.StdEncoding.DecodeString(data[corev1.TLSCertKey])
	if err != nil {
		return nil
	}
	return raw
}

// notBefore returns the start of the validity of a certificate; zero if it cannot be parsed.
func notBefore(cert []byte) time.Time {
	info, err := pki.Inspect(cert)
	if err != nil {
		return time.Time{}
	}
	return info.NotBefore.UTC()
}
