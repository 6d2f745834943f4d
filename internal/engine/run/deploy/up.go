// Package deploy turns a setup into a working kcp: it plans, applies in the order of the components, waits with reasons,
// and proves that the result serves. It also replaces certificate authorities and keys, and removes a setup.
package deploy

import (
	"context"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// The steps of a run, by the names in their events.
const (
	stepPreflight    = "preflight"
	stepEdits        = "pending edits"
	stepCertificates = "certificates"
	stepPlan         = "plan"
	stepReachability = "reachability"
	stepCanary       = "canary"
	stepAddresses    = "addresses"
)

// Up brings a setup up, or changes a running one. It can be interrupted at any moment and run again.
type Up struct {
	Topology *topology.Topology
	Runtime  run.Runtime
	// Setup is the setup file to remember once it is applied. Nil keeps the one that is remembered.
	Setup []byte
	// File is the text of the setup file.
	File    []byte
	Observe run.Observer
	Now     func() time.Time
	Options UpOptions
	// Network is the network of this machine, for preflight checks. Nil is the real one.
	Network check.Network

	// began is when the run began.
	began time.Time
	// change changes the PKI with this run: a step of a rotation.
	change pkiChange
	// left are the clusters that the run excludes, because they cannot be reached.
	left []plan.Unreachable
	*reporter
}

// UpOptions are the options of a run of Up.
type UpOptions struct {
	run.PlanOptions
	// DryRun ends after the plan.
	DryRun bool
	// SkipCanary skips the workspaces that prove that each shard serves.
	SkipCanary bool
	// Canaries are the shards that get one. Empty means all.
	Canaries []topology.ID
	// Only limits the run to some components: the others are not changed, whatever the setup file says about them.
	Only []topology.ID
	// Restart are components whose pods or processes start again, although they do not change.
	Restart []topology.ID
	// Removed are components that the setup no longer has, and that the run deletes although it is limited by Only.
	Removed []topology.ID
	// AllowUnreachable are clusters that the run may exclude if they cannot be reached.
	AllowUnreachable []string
	// ForgetClusters are clusters that the setup has left and that are lost for good: the record forgets the data
	// there.
	ForgetClusters []string
	// Parallel is how many shards may be rolled at a time. Zero means one.
	Parallel int
	// Timeout limits the wait for readiness.
	Timeout time.Duration
	// Renew reports which certificates to reissue although they fit. Nil is none.
	Renew func(pki.Cert) bool
	// Unedited is the setup file of a run that must not apply pending edits of it: the run is refused if there are any.
	Unedited []byte
	// Edit writes the edit of the setup file that the run is for. It is called under the lock, after the last reason
	// to refuse the run and before everything else is written.
	Edit func() error
	// IgnoreChecks are IDs of preflight checks whose failures are only warnings.
	IgnoreChecks []string
	// AllowDataChange are the components that may leave the data that they have.
	AllowDataChange []topology.ID
	// AllowReleaseChange accepts a kcp release that skips one, or that is older than what runs.
	AllowReleaseChange bool
	// NewInstallation creates the installation that the setup file names.
	NewInstallation bool
	// ReplaceAuthorities accepts a PKI that is not the installation's, and creates authorities that are lost or have
	// expired.
	ReplaceAuthorities bool
	// AllowTrustChange are fingerprints of certificates that may be added to bundles, or removed from them.
	AllowTrustChange []string
	// AllowRestoredRecord accepts a record that is older than the one that was written last.
	AllowRestoredRecord bool
}

// Result describes what a run did, or would do.
type Result struct {
	Plan *plan.Plan
	PKI  *pki.Result

	desired *Desired
	// record is the record of the installation once the plan is applied, and known the one that it has now.
	record, known *record.Record
	// data is where the components of the run hold their data.
	data   map[topology.ID]record.Data
	claims []*prefix
	// moved are the front-proxies that must restart, by the shard whose base URL has changed. The record of the
	// finished run only has those that could not be reached.
	moved map[topology.ID][]topology.ID
	// replaced are the authorities that the run replaces without a rotation, by pki.Rotation.Key.
	replaced []string
	// partial means that the setup has changes that the run does not apply, because it is limited to components.
	partial bool
	// Refused is why a run that is not dry would be refused: clusters that cannot be reached. Nil: it would not.
	Refused error
}

// Created returns the ID of the installation that the run has created. It is empty if the installation existed.
func (r *Result) Created() string {
	if r.record == nil || !r.known.Empty() {
		return ""
	}
	return r.record.Installation
}

// Run plans, applies, waits and verifies. With a conflict it writes nothing and the Result has the plan. The first
// plan decides whether there is anything to do; the plan that is applied is made under the lock.
func (u *Up) Run(ctx context.Context) (*Result, error) {
	u.reporter = run.NewReporter(u.Observe, u.Now)
	u.began = u.Now()
	res, err := u.prepare(ctx)
	if err != nil || u.Options.DryRun {
		u.notProbed(err)
		return res, err
	}
	if res.Plan.Empty() && u.Options.Edit == nil {
		return res, u.components(ctx, res)
	}
	if err := u.applyNamespaces(ctx, res.Plan); err != nil {
		return res, err
	}
	if err := u.probe(ctx, res); err != nil {
		return res, err
	}
	err = run.Locked(ctx, u.Runtime, func(ctx context.Context) error {
		planned := summaryBesidesNamespaces(res.Plan)
		res = nil // of a large setup it takes much memory
		if res, err = u.prepareAgain(ctx); err != nil {
			return err
		}
		if summaryBesidesNamespaces(res.Plan) != planned {
			u.Step(stepPlan, run.Done, res.Plan.Summary()+"; another run has changed the setup since")
		}
		return u.apply(ctx, res)
	}, nil)
	return res, err
}

// summaryBesidesNamespaces is the summary of a plan without the namespaces, which exist by the time that the lock is
// held.
func summaryBesidesNamespaces(p *plan.Plan) string {
	others := slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return it.Kind == "Namespace" })
	return (&plan.Plan{Items: others}).Summary()
}

// applyNamespaces creates the namespaces first: lock, PKI and inventory live in them.
func (u *Up) applyNamespaces(ctx context.Context, p *plan.Plan) error {
	items := slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return !isNewNamespace(it) })
	if len(items) == 0 {
		return nil
	}
	return u.Runtime.Apply(ctx, items, u.Options.PlanOptions)
}

// apply writes the plan. Everything that it creates is remembered first.
func (u *Up) apply(ctx context.Context, res *Result) error {
	if u.Options.Edit != nil {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := u.Options.Edit(); err != nil {
			return err
		}
	}
	if !res.Plan.Empty() {
		if err := res.desired.Save(ctx); err != nil {
			return err
		}
		if err := u.claimPrefixes(ctx, res); err != nil {
			return err
		}
		if err := u.Runtime.Begin(ctx, res.Plan, res.record.WithPlaced(res.known).WithMoved(res.moved)); err != nil {
			return err
		}
	}
	if err := u.components(ctx, res); err != nil {
		return err
	}
	// Only now the run counts as finished: if a canary fails, the next run tries again, and nothing is deleted until
	// kcp serves.
	if err := u.withdraw(ctx, res); err != nil {
		return err
	}
	if err := u.recordVolumes(ctx, res); err != nil {
		return err
	}
	if !res.partial {
		res.record.Applied(u.Now())
	}
	return u.Runtime.Finish(ctx, res.Plan, res.record, u.applied(res))
}

// applied returns what the run has applied when it is finished: the setup, or only some of its components if more is
// pending.
func (u *Up) applied(res *Result) plan.Applied {
	a := plan.Applied{Setup: u.Setup, File: u.File}
	if res.partial {
		a.Only, a.Without = run.Names(u.Options.Only), u.withoutClusters()
	}
	return a
}

// reporter is not part of what callers set.
type reporter = run.Reporter
