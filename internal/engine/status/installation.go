package status

import (
	"context"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// installation reads what the installation knows about itself: its runs, and whether the PKI store is its own. What
// cannot be read is left empty: the comparison with the setup has the reason.
func (c *collector) installation(ctx context.Context, loaded bool) {
	if current, unfinished, err := c.runtime.Runs(ctx); err == nil {
		c.Run = current
		c.applying = unfinished != nil
		if current == nil {
			c.LastRun = unfinished
		}
	}
	known, err := c.runtime.Record(ctx)
	if err != nil || !loaded {
		return
	}
	c.known = known
	c.Restoring = known.Restoring
	store := c.runtime.Store().String()
	if err := known.CheckAuthorities(c.state, store); err != nil {
		c.PKIProblem, _, _ = strings.Cut(err.Error(), "\n")
		c.PKINext = clierr.Hint(err)
		return
	}
	c.LostKeys, c.LostKeysNext = known.LostKeysMessage(c.state, store)
}

// off finds out whether the setup is stopped, or was never installed. Then nothing is wrong with its components, and
// without ports that were assigned it has no URL.
func (c *collector) off(ctx context.Context) bool {
	runs := func(comp Component) bool { return comp.ReadyReplicas > 0 || comp.Unknown }
	if c.Run != nil || c.applying || len(c.lost) > 0 || c.known == nil || slices.ContainsFunc(c.Components, runs) {
		return false
	}
	objects, err := c.runtime.Objects(ctx)
	if err != nil || slices.ContainsFunc(objects, deployed) {
		return false
	}
	c.State = Stopped
	if c.known.Empty() {
		c.State = NotInstalled
	}
	if c.State == NotInstalled && c.topology.Local() {
		c.URL = ""
		for i := range c.Components {
			c.Components[i].URL = ""
		}
	}
	return true
}

// deployed reports whether an object is one that kcpctl down deletes.
func deployed(it plan.Item) bool {
	k, err := kind.Of(it.GroupVersionKind)
	return it.Workspace == "" && (err != nil || !k.Persistent)
}

// rotations finds the rotations in progress. The authorities in the same phase continue together.
func (c *collector) rotations() {
	for _, phase := range []pki.Phase{pki.PhaseDistribute, pki.PhaseSwitch} {
		var authorities, key, encryption pki.Rotations
		for _, r := range pki.AllRotations().In(c.state, phase) {
			switch r {
			case pki.KeyRotation{}:
				key = append(key, r)
			case pki.EncryptionRotation{}:
				encryption = append(encryption, r)
			default:
				authorities = append(authorities, r)
			}
		}
		for _, all := range []pki.Rotations{authorities, key, encryption} {
			if len(all) == 0 {
				continue
			}
			rotation := Rotation{Rotations: all, Phase: phase, Incomplete: c.applying}
			for _, r := range all {
				rotation.Of = append(rotation.Of, r.Key())
			}
			c.Rotations = append(c.Rotations, rotation)
		}
	}
}

// countRotated counts, for each rotation that is not complete, the components that have what its phase brings.
func (c *collector) countRotated() {
	for i := range c.Rotations {
		r := &c.Rotations[i]
		if !r.Incomplete || c.pending == nil {
			continue
		}
		r.Done = &Share{}
		for _, comp := range c.topology.Running() {
			if !c.uses(comp, r.Rotations) {
				continue
			}
			r.Done.Of++
			if !c.pending[comp.ID()] {
				r.Done.Count++
			}
		}
	}
}

// uses reports whether a component has certificates or keys that rotations change, or trusts them.
func (c *collector) uses(comp *topology.Component, all pki.Rotations) bool {
	if all.OfServiceAccount() || all.OfEncryption() {
		return comp.IsShard()
	}
	trusts := slices.ContainsFunc(c.topology.Bundles(comp), all.Has)
	return trusts || slices.ContainsFunc(pki.Table(c.topology), func(cert pki.Cert) bool {
		return cert.Component == comp.ID() && all.Has(cert.CA)
	})
}
