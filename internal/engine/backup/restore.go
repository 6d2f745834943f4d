package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// The steps of a restore.
const (
	stepVerify = "verify"
	stepStop   = "stop"
	stepKeys   = "keys"
	stepPlace  = "data"
)

// Place is where restored data goes.
type Place interface {
	// Placeable refuses components whose data cannot be replaced, all at once. It writes nothing.
	Placeable(ctx context.Context, all []*topology.Component) error
	// WasHere reports whether a backup was taken of data in one of the places of the setup. False: it was elsewhere, or
	// that is unknown.
	WasHere(ctx context.Context, d record.Data) (bool, error)
	// PrepareRestore creates what must exist before the lock: namespaces.
	PrepareRestore(ctx context.Context) error
	// PlaceData makes a database the data of a component, which does not run. What it had is moved aside. A call that
	// was interrupted can be repeated.
	PlaceData(ctx context.Context, c *topology.Component, data run.Restored) (run.Placed, error)
	// SetAside moves the data of a component aside, so that it begins without. The file is not used.
	SetAside(ctx context.Context, c *topology.Component, data run.Restored) (run.Placed, error)
}

// RestoreRuntime is what Restore needs of a runtime.
type RestoreRuntime interface {
	run.Archive
	run.Keeper
	run.Locker
	run.Deleter
}

// Restore brings back the data of shards from a backup, and the PKI and the record if they are lost. Afterwards the
// servers do not run: up starts them. An interrupted restore continues when it is run again.
type Restore struct {
	Topology *topology.Topology
	Runtime  RestoreRuntime
	Place    Place
	Target   archive.Target
	Name     string
	// Shards limits the restore to some shards, and to the shards of an interrupted restore. Empty: all.
	Shards []topology.ID
	// Instead are the backups whose interrupted restores this one takes the place of.
	Instead []string
	// OriginalLost accepts that the restored installation takes over agents and clusters of one that was elsewhere.
	OriginalLost bool
	// Identities decrypt the PKI. They are needed only if the installation has no PKI.
	Identities []age.Identity
	Observe    run.Observer
	Now        func() time.Time

	events
	manifest *archive.Manifest
	known    *record.Record
	dir      string
}

// Plan lists the effects of a restore.
type Plan struct {
	Verified *Verified
	// Restored are the components whose data is replaced.
	Restored []topology.ID
	// Emptied are those that begin without data, because kcp fills them again.
	Emptied []topology.ID
	// Keys means that the PKI and the record are restored, too.
	Keys bool
	// TakenOver are the agents and clusters that an installation elsewhere would lose to the restored one, if it still
	// runs.
	TakenOver []topology.ID
}

// Plan verifies the backup, and finds out what the restore does. It refuses what would lose something, and writes
// nothing.
func (r *Restore) Plan(ctx context.Context) (*Plan, error) {
	r.events = events{observe: r.Observe, now: r.Now}
	r.step(stepVerify, run.Running, r.Name)
	p, err := r.plan(ctx)
	if err != nil {
		return nil, r.fail(stepVerify, err)
	}
	r.step(stepVerify, run.Done, fmt.Sprintf("%s, taken %s", gather.Count(len(r.manifest.Databases), "shard", "shards"),
		r.manifest.Created.Format(time.RFC3339)))
	return p, nil
}

func (r *Restore) plan(ctx context.Context) (*Plan, error) {
	v := &Verify{Target: r.Target, Name: r.Name, Report: r.component}
	found, err := v.Run(ctx)
	if err != nil {
		return nil, err
	}
	if len(found.Damage) > 0 {
		return nil, clierr.New(clierr.Failed, "use another backup: kcpctl backup list shows them", "%s",
			strings.Join(found.Damage, "; "))
	}
	r.manifest = found.Manifest
	if r.known, err = r.Runtime.Record(ctx); err != nil {
		return nil, err
	}
	p := &Plan{Verified: found}
	if p.Keys, err = r.lacksKeys(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(r.matches(), r.choose(p)); err != nil {
		return nil, err
	}
	if p.Keys {
		err = r.checkKeys(ctx, p)
	} else {
		err = r.checkEncryption(ctx)
	}
	return p, errors.Join(err, r.Place.Placeable(ctx, r.components(slices.Concat(p.Restored, p.Emptied))))
}

// lacksKeys reports whether the installation is lost, or this restore, or the one that it takes the place of, was
// interrupted before it had saved the PKI.
func (r *Restore) lacksKeys(ctx context.Context) (bool, error) {
	if r.known.Empty() || r.known.Restoring != r.Name && !slices.Contains(r.Instead, r.known.Restoring) {
		return r.known.Empty(), nil
	}
	state, err := r.Runtime.Store().Load(ctx)
	return err == nil && len(state.CAs) == 0, err
}

func (r *Restore) components(ids []topology.ID) []*topology.Component {
	var out []*topology.Component
	for _, id := range ids {
		out = append(out, r.Topology.Component(id))
	}
	return out
}

// matches refuses a backup of another installation, or of a release that the setup does not run.
func (r *Restore) matches() error {
	if r.manifest.Setup != r.Topology.Name {
		return clierr.New(clierr.BadInput,
			"name the setup file of the backup with -f: the backup contains it, as "+archive.FileSetup,
			"the backup is one of setup %q, and this is %q", r.manifest.Setup, r.Topology.Name)
	}
	if !r.known.Empty() && r.known.Installation != r.manifest.Installation {
		return clierr.New(clierr.Failed, "restore it where that installation is, or where there is none",
			"the backup is one of installation %s, and this is %s", r.manifest.Installation, r.known.Installation)
	}
	switch {
	case r.known.Restoring == r.Name:
		return nil // this restore continues
	case slices.Contains(r.Instead, r.known.Restoring):
		whole := *r.known
		whole.Restoring = ""
		return whole.CheckRestored()
	}
	return r.known.CheckRestored()
}

// checkKeys refuses what cannot bring back a lost installation: without keys, or without the data of a shard, which
// would begin empty while others refer to what was in it.
func (r *Restore) checkKeys(ctx context.Context, p *Plan) error {
	if len(r.Shards) > 0 {
		return clierr.New(clierr.BadInput, "leave out --shard",
			"this installation does not exist here, so the shards without --shard would begin without data")
	}
	then, err := r.recordThen(ctx)
	if err != nil {
		return err
	}
	if err := r.checkCopy(ctx, p, then); err != nil {
		return err
	}
	for _, c := range r.Topology.Shards() {
		why, lacks := r.manifest.Partial[c.ShardName()]
		if was, ok := then.Data[c.ID()]; ok && !lacks && !was.Removed { // the setup file of the backup lacked the shard
			lacks, why = !r.manifest.Has(c.ID()), "its setup file did not have the shard"
		}
		if lacks {
			return clierr.New(clierr.Failed,
				"use another backup: kcpctl backup list shows them; or, if there is no other, remove the shard from "+
					"the setup file",
				"this installation does not exist here, and the backup has no data of %s: %s", c.ID(), why)
		}
	}
	if len(r.manifest.Recipients) == 0 {
		return clierr.New(clierr.Failed,
			"use a backup with keys, or import the authorities with kcpctl certs import, and run kcpctl up first",
			"this installation does not exist here, and the backup has no keys")
	}
	if len(r.Identities) == 0 {
		return clierr.New(clierr.BadInput,
			"name the file with the private key of one of the recipients with --identity",
			"this installation does not exist here, so its keys are needed, and they are encrypted to %s",
			strings.Join(r.manifest.Recipients, ", "))
	}
	return nil
}

// checkCopy refuses to restore an installation that was elsewhere, and may still run there, if it has agents or
// workloads: with the credentials of the original, they would change what runs in its clusters to what the backup has.
func (r *Restore) checkCopy(ctx context.Context, p *Plan, then *record.Record) error {
	if here, err := r.wasHere(ctx, then); err != nil || here {
		return err
	}
	var ids []string
	for _, c := range r.Topology.Components {
		if c.Kind.UsesClusters() {
			p.TakenOver = append(p.TakenOver, c.ID())
			ids = append(ids, string(c.ID()))
		}
	}
	without := "remove spec.agents and spec.workloads from a copy of the setup file, and name that file with -f"
	switch {
	case len(ids) == 0:
		return nil
	case r.Topology.Local():
		return clierr.New(clierr.BadInput, without,
			"this copy of an installation on clusters would change what runs there: the setup file has %s",
			strings.Join(ids, ", "))
	case r.OriginalLost:
		return nil
	}
	return clierr.New(clierr.Failed, "if it is lost for good, add "+risk.LostInstallation.Flag()+
		"; for a copy beside it, "+without,
		"the installation of the backup was on another cluster or in another namespace, and may still run there: "+
			"this one would take over %s", strings.Join(ids, ", "))
}

// wasHere reports whether all data of an installation was in the places of the setup.
func (r *Restore) wasHere(ctx context.Context, then *record.Record) (bool, error) {
	for _, d := range then.Data {
		if d.Removed {
			continue
		}
		if here, err := r.Place.WasHere(ctx, d); err != nil || !here {
			return false, err
		}
	}
	return true, nil
}

// choose decides which components get data.
func (r *Restore) choose(p *Plan) error {
	var errs []error
	for _, d := range r.manifest.Databases {
		if len(r.Shards) > 0 && !slices.Contains(slices.Concat(r.Shards, r.known.Awaiting), d.Component) {
			continue
		}
		c := r.Topology.Component(d.Component)
		switch {
		case c == nil:
			next := "add it to the setup file again, or choose shards with --shard"
			if p.Keys {
				next = "add it to the setup file again, and remove it with kcpctl remove-shard afterwards"
			}
			errs = append(errs, clierr.New(clierr.BadInput, next,
				"%s is in the backup, and not in the setup file", d.Component))
		case c.Version != d.Kcp:
			errs = append(errs, clierr.New(clierr.BadInput,
				"set the release in the setup file to "+d.Kcp+", and upgrade afterwards",
				"%s is data of kcp %s, and the setup file has %s", d.Component, d.Kcp, c.Version))
		default:
			p.Restored = append(p.Restored, d.Component)
		}
	}
	for _, id := range r.Shards {
		if !r.manifest.Has(id) {
			errs = append(errs, clierr.New(clierr.BadInput, "kcpctl backup list shows the others",
				"%s is not in the backup", id))
		}
	}
	for _, id := range r.known.Awaiting { // it may have the data of the other backup, which does not fit
		if !r.manifest.Has(id) && !slices.Contains(r.Shards, id) {
			errs = append(errs, clierr.New(clierr.Failed, "use a backup that has it: kcpctl backup list shows them",
				"%s is not in the backup, and the interrupted restore of %s has begun to replace its data", id,
				r.known.Restoring))
		}
	}
	if cache := r.Topology.Cache(); cache != nil && len(errs) == 0 {
		p.Emptied = append(p.Emptied, cache.ID()) // shards write into it what they have
	}
	return errors.Join(errs...)
}

// Run restores what Plan has returned.
func (r *Restore) Run(ctx context.Context, p *Plan) error {
	stage, err := archive.NewScratch(r.Target)
	if err != nil {
		return err
	}
	defer stage.Remove()
	r.dir = stage.Dir
	if err := r.Place.PrepareRestore(ctx); err != nil {
		return err
	}
	return run.Locked(ctx, r.Runtime, func(ctx context.Context) error { return r.restore(ctx, p) }, nil)
}

func (r *Restore) restore(ctx context.Context, p *Plan) error {
	known, err := r.Runtime.Record(ctx)
	if err != nil {
		return err
	}
	if !known.Equal(r.known) {
		return clierr.New(clierr.Conflict, "rerun the command",
			"another run has changed the installation in the meantime")
	}
	begin := r.begin
	if p.Keys {
		begin = r.beginWithKeys
	}
	if known, err = begin(ctx, p, known); err != nil {
		return err
	}
	if err := r.stop(ctx, known); err != nil {
		return r.fail(stepStop, err)
	}
	if err := r.place(ctx, p, known); err != nil {
		return r.fail(stepPlace, err)
	}
	known.Restoring = ""
	known.Awaiting = nil
	known.Stopped = time.Time{}
	return r.Runtime.Keep(ctx, known)
}

// begin records that the restore has begun.
func (r *Restore) begin(ctx context.Context, p *Plan, known *record.Record) (*record.Record, error) {
	if known.Data == nil { // an empty one is not stored
		known.Data = map[topology.ID]record.Data{}
	}
	if known.Restoring != r.Name {
		known.Stopped = time.Time{}
	}
	known.Restoring = r.Name // until the end, so that no server starts without its data
	known.Restores++         // a rotation that is in progress writes the restored objects, too
	known.Awaiting = p.Restored
	if slices.Contains(p.Restored, topology.ID(topology.RootShard)) {
		known.Moved = r.moved()
	}
	return known, r.Runtime.Keep(ctx, known)
}

// beginWithKeys begins the restore of an installation that is lost, and restores its PKI. The record comes first: with
// the PKI alone, kcpctl up would begin an installation without data.
func (r *Restore) beginWithKeys(ctx context.Context, p *Plan, live *record.Record) (*record.Record, error) {
	r.step(stepKeys, run.Running, "")
	known, lost, err := r.keys(ctx, live)
	if err != nil {
		return nil, r.fail(stepKeys, err)
	}
	if known, err = r.begin(ctx, p, known); err != nil {
		return nil, r.fail(stepKeys, err)
	}
	if lost != nil {
		if err := r.Runtime.Store().Save(ctx, lost); err != nil {
			return nil, r.fail(stepKeys, err)
		}
	}
	r.step(stepKeys, run.Done, known.Installation)
	return known, nil
}

// checkEncryption refuses data that is encrypted with a key that the installation no longer has, or that shards do not
// decrypt. In the middle of a rotation, the installation has the previous key until all objects are written again, also
// those that are restored meanwhile.
func (r *Restore) checkEncryption(ctx context.Context) error {
	then, err := r.recordThen(ctx)
	if err != nil {
		return err
	}
	state, err := r.Runtime.Store().Load(ctx)
	if err != nil {
		return err
	}
	if err := r.checkAuthorities(state); err != nil {
		return err
	}
	key := pki.EncryptionRotation{}.Key()
	have := state.Fingerprints()[key].All()
	for _, f := range then.Authorities[key].All() {
		if !slices.Contains(have, f) {
			return clierr.New(clierr.Failed, r.hintOtherKeys(),
				"the backup can have data that is encrypted with key %s, which the installation no longer has",
				record.Short(f))
		}
	}
	decrypted := state.Encryption.Covers(pki.EncryptedResources(r.Topology))
	for _, resource := range then.Encrypted {
		if !slices.Contains(decrypted, resource) {
			return clierr.New(clierr.BadInput,
				"add "+resource+" to spec.encryption.resources in the setup file: shards then decrypt them",
				"the backup has encrypted %s, and the setup no longer encrypts them: shards could not read them",
				resource)
		}
	}
	return nil
}

// hintOtherKeys is the next step for a backup whose keys the installation does not have: they may be the keys of another
// backup, whose restore was interrupted.
func (r *Restore) hintOtherKeys() string {
	hint := "use a backup that was taken after kcpctl encryption rotate"
	if r.known.Restoring != "" && r.known.Restoring != r.Name {
		hint += "; if the installation was lost before the interrupted restore of " + r.known.Restoring +
			", delete what that has restored with kcpctl down --purge, and run the command again"
	}
	return hint
}

// checkAuthorities refuses to stop an installation whose PKI is lost: it could not start again.
func (r *Restore) checkAuthorities(s *pki.State) error {
	err := r.known.CheckAuthorities(s, r.Runtime.Store().String())
	if err == nil || len(r.manifest.Recipients) == 0 {
		return err
	}
	return clierr.New(clierr.Failed, "first import the PKI from the backup with kcpctl certs import BACKUP "+
		"--identity FILE, and rerun the command", "%w", err)
}

// keys returns the record of the backup without what describes where data was, and the PKI of the backup, or nil if the
// PKI store has it.
func (r *Restore) keys(ctx context.Context, live *record.Record) (*record.Record, *pki.State, error) {
	restored, known, err := Keys(ctx, r.Target, r.manifest, r.Identities)
	if err != nil {
		return nil, nil, err
	}
	state, err := r.Runtime.Store().Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(state.CAs) > 0 {
		restored = nil
		if err := known.CheckAuthorities(state, r.Runtime.Store().String()); err != nil {
			return nil, nil, err
		}
	}
	if !live.Empty() { // this restore was interrupted before it saved the PKI
		if restored != nil {
			err = live.CheckAuthorities(restored, "the backup")
		}
		return live, restored, err
	}
	known.Data = map[topology.ID]record.Data{}
	known.Addresses = topology.Addresses{}
	known.Witnessed = live.Witnessed
	known.AcceptRestored() // clusters that remain have noted later records
	return known, restored, nil
}

// moved are the front-proxies that must restart after the shards have registered: until then, the root shard has the
// URLs of the place that the backup is from, and a front-proxy loses a shard whose URL changes.
func (r *Restore) moved() map[topology.ID][]topology.ID {
	var proxies []topology.ID
	for _, c := range r.Topology.FrontProxies() {
		proxies = append(proxies, c.ID())
	}
	out := map[topology.ID][]topology.ID{}
	for _, shard := range r.Topology.Shards() {
		out[shard.ID()] = proxies
	}
	return out
}

// recordThen returns the record as it was when the backup was taken.
func (r *Restore) recordThen(ctx context.Context) (*record.Record, error) {
	raw, err := readFile(ctx, r.Target, r.manifest, archive.FileRecord)
	if err != nil {
		return nil, err
	}
	return record.Decode(raw)
}

// stop removes everything that runs: servers would write into the data that is replaced, and what workspaces lose in it
// controllers, syncers and agents would delete elsewhere. It records when all had stopped: what has run since an
// interrupted run can have reached a higher revision.
func (r *Restore) stop(ctx context.Context, known *record.Record) error {
	objects, err := r.Runtime.Objects(ctx)
	if err != nil {
		return err
	}
	var running []plan.Item
	for _, it := range objects {
		if plan.HasPods(it.Kind) {
			running = append(running, it)
		}
	}
	r.step(stepStop, run.Running, gather.Count(len(running), "workload", "workloads"))
	stages := topology.Stages()
	stage := func(it plan.Item) int { // components of unknown kinds, which another release has written, are the first
		return slices.IndexFunc(stages, func(s []topology.Kind) bool { return slices.Contains(s, it.Component.Kind()) })
	}
	for i := -1; i < len(stages); i++ {
		now := slices.DeleteFunc(slices.Clone(running), func(it plan.Item) bool { return stage(it) != i })
		if err := r.Runtime.Delete(ctx, now); err != nil {
			return err
		}
	}
	if len(running) > 0 || known.Stopped.IsZero() {
		known.Stopped = r.Now().UTC().Truncate(time.Microsecond)
		if err := r.Runtime.Keep(ctx, known); err != nil {
			return err
		}
	}
	r.step(stepStop, run.Done, gather.Count(len(running), "workload", "workloads")+" stopped")
	return nil
}
