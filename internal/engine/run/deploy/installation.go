package deploy

import (
	"fmt"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// FlagNewInstallation is the flag that creates the installation which a setup file names.
const FlagNewInstallation = "new-installation"

// sameInstallation refuses a PKI of another installation than the one that the setup file names. A setup without a
// store has no PKI.
func sameInstallation(t *topology.Topology, loaded *pki.State, store pki.Store) error {
	if store == nil {
		return nil
	}
	return (&record.Record{Installation: loaded.Installation.ID}).CheckInstallation(t.Installation(), store.String())
}

// MayRemove fails if something would be removed of which it is not known that it is the installation that the setup
// file names.
func MayRemove(t *topology.Topology, known *record.Record, loaded *pki.State, where string) error {
	named := t.Installation()
	if named == "" || !known.Empty() || loaded.Installation.ID == named {
		return nil
	}
	return clierr.New(clierr.Failed,
		"choose the right context and namespace; or, to remove what is left there, remove metadata.installation from "+
			"the setup file",
		"the setup file is for installation %s (metadata.installation), and %s has no record of it; nothing was "+
			"removed", named, where)
}

// mayInstall refuses to create the installation that the setup file names, unless that is requested: where it is not
// found, the context may be wrong, or it may have been lost with its data.
func (p *preparation) mayInstall(loaded *pki.State) error {
	named := p.Topology.Installation()
	if named == "" || !p.known.Empty() || loaded.Installation.ID != "" || p.Options.NewInstallation {
		return nil
	}
	return clierr.New(clierr.Failed,
		"choose the right context and namespace; or restore it from a backup; or, if it does not exist anywhere yet, "+
			"create it with --"+FlagNewInstallation,
		"the setup file is for installation %s (metadata.installation), and %s has no installation; "+
			"nothing was changed",
		named, p.Runtime.Store())
}

// noneLost refuses to make an installation where another one was of which neither the record nor the PKI nor an object
// is left: an external etcd may still have its data, below a prefix that the new one would not use.
func (g *guard) noneLost() error {
	lost, named := g.known.Lost, g.Topology.Installation()
	if lost == "" || !g.before.Empty() || g.Options.NewInstallation && named != "" && named != lost {
		return nil
	}
	return clierr.New(clierr.Failed,
		fmt.Sprintf("restore a backup (kcpctl restore), or the Secrets with the record and the PKI; or, if they are "+
			"lost for good, create a new installation with kcpctl up %s", risk.LostRecord.Of(lost)),
		"installation %s of kcp %q was in %s, and its record does not exist any more; %s is empty, so a new "+
			"installation would have other certificate authorities and other data; nothing was changed",
		lost, g.Topology.Name, g.Runtime.Where(), g.Runtime.Store())
}
