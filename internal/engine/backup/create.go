// Package backup takes backups of installations, verifies them, and brings back what was lost.
package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// The steps of a backup.
const (
	stepInstallation = "installation"
	stepCompare      = "compare"
	stepArchive      = "archive"
	stepPrune        = "prune"
)

// Source connects to the etcds of shards.
type Source interface {
	// Snapshots returns a client of the etcd of a shard, for snapshots, and why they may lack the last writes. The
	// caller closes it. It fails with the reason why the etcd gives none.
	Snapshots(ctx context.Context, c *topology.Component) (client *etcd.Client, doubt, err error)
}

// Create takes a backup: snapshots of the etcds of shards, opened together, the setup, the record and the PKI.
type Create struct {
	Topology *topology.Topology
	Archive  run.Archive
	Source   Source
	Target   archive.Target
	// Shards limits the backup to some shards. Empty: all.
	Shards []topology.ID
	// Recipients are the public keys to which the PKI is encrypted. WithoutKeys leaves the PKI out.
	Recipients  []string
	WithoutKeys bool
	// Keep is which backups of the installation are kept when the new one is complete. Zero deletes none.
	Keep Keep
	// Kcpctl is the release of kcpctl.
	Kcpctl  string
	Observe run.Observer
	Now     func() time.Time

	events
	known *record.Record
}

// source is an etcd that a backup reads.
type source struct {
	shard   *topology.Component
	client  *etcd.Client
	version string
	// doubt is why the snapshot may lack the last writes.
	doubt error
	err   error
	// database describes the snapshot, and content is what connects it with others.
	database archive.Database
	content  *content.Shard
	file     archive.File
}

// Run takes the backup. If some shards cannot be read, it completes with the others, and returns an error.
func (c *Create) Run(ctx context.Context) (*archive.Manifest, error) {
	c.events = events{observe: c.Observe, now: c.Now}
	m, files, err := c.describe(ctx)
	if err != nil {
		return nil, err
	}
	sources := c.connect(ctx)
	defer func() {
		for _, s := range sources {
			if s.client != nil {
				s.client.Close()
			}
		}
	}()
	if err := c.copyAll(ctx, m, sources); err != nil {
		c.discard(ctx, m)
		return nil, err
	}
	c.compare(m, sources)
	c.step(stepArchive, run.Running, c.Target.String())
	if err := c.finish(ctx, m, files); err != nil {
		c.discard(ctx, m)
		return nil, c.fail(stepArchive, err)
	}
	c.step(stepArchive, run.Done, fmt.Sprintf("%s in %s", m.Name, c.Target))
	return m, parallel.Join([]error{c.incomplete(m), c.prune(ctx, m)})
}

// discardTime is how long a failed backup may take to remove what it has written.
const discardTime = 10 * time.Second

// discard removes what a failed backup has written: nothing completes it, and a job that fails each night would fill
// the target.
func (c *Create) discard(ctx context.Context, m *archive.Manifest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	if err := archive.Delete(ctx, c.Target, m.Name); err != nil {
		message := fmt.Sprintf("a part of backup %s is still in %s: %s", m.Name, c.Target, run.FirstLine(err))
		c.emit(run.Event{Scope: run.Note, Message: message})
	}
}

// prune deletes old backups of the installation. A partial backup replaces only partial ones, but while a shard cannot
// be read, they must not fill the target either. The new backup is kept, also if the clock of an earlier one was ahead.
func (c *Create) prune(ctx context.Context, m *archive.Manifest) error {
	if c.Keep == (Keep{}) {
		return nil
	}
	found, err := archive.List(ctx, c.Target)
	if err != nil {
		return c.fail(stepPrune, err)
	}
	own := slices.DeleteFunc(found.Complete,
		func(o *archive.Manifest) bool { return o.Installation != m.Installation })
	var deleted []string
	old := slices.DeleteFunc(Prunable(own, c.Keep, c.Now()),
		func(o *archive.Manifest) bool { return o.Name == m.Name })
	err = Prune(ctx, c.Target, old, func(name string) { deleted = append(deleted, name) })
	if err != nil {
		return c.fail(stepPrune, err)
	}
	if len(deleted) > 0 {
		c.step(stepPrune, run.Done, "deleted "+strings.Join(deleted, ", "))
	}
	return nil
}

// describe reads what the installation keeps about itself.
func (c *Create) describe(ctx context.Context) (*archive.Manifest, map[string][]byte, error) {
	c.step(stepInstallation, run.Running, "")
	m, files, err := c.read(ctx)
	if err != nil {
		return nil, nil, c.fail(stepInstallation, err)
	}
	c.step(stepInstallation, run.Done, m.Installation)
	return m, files, nil
}

func (c *Create) read(ctx context.Context) (*archive.Manifest, map[string][]byte, error) {
	recipients, err := Recipients(c.Recipients, c.WithoutKeys)
	if err != nil {
		return nil, nil, err
	}
	known, err := c.Archive.Record(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.known = known
	if err := run.RecordLost(ctx, c.Archive, c.Topology.Name, known); err != nil {
		return nil, nil, err
	}
	if known.Empty() {
		return nil, nil, clierr.New(clierr.Failed, "run kcpctl up first", "nothing was applied yet")
	}
	history, err := c.Archive.History(ctx)
	if err != nil {
		return nil, nil, err
	}
	applied, _ := plan.Latest(history)
	if applied == nil {
		return nil, nil, clierr.New(clierr.Failed, "run kcpctl up first", "no setup was applied completely yet")
	}
	encoded, err := known.Encode(c.Kcpctl, nil)
	if err != nil {
		return nil, nil, err
	}
	now := c.Now()
	m := &archive.Manifest{
		Format: archive.Format, Name: archive.Name(c.Topology.Name, now), Setup: c.Topology.Name,
		Installation: known.Installation, Created: now.UTC().Truncate(time.Second), Kcpctl: c.Kcpctl,
		Recipients: c.Recipients, Files: map[string]archive.File{}, Partial: map[string]string{},
	}
	files := map[string][]byte{archive.FileSetup: applied, archive.FileRecord: encoded}
	if len(recipients) == 0 {
		return m, files, c.unused(ctx, m.Name)
	}
	state, err := c.Archive.Store().Load(ctx)
	if err == nil {
		err = known.CheckAuthorities(state, c.Archive.Store().String())
	}
	if err != nil {
		return nil, nil, err
	}
	var sealed bytes.Buffer
	if err := archive.Seal(&sealed, pki.Encode(state.Authorities()), recipients, now); err != nil {
		return nil, nil, err
	}
	files[archive.FileKeys] = sealed.Bytes()
	return m, files, c.unused(ctx, m.Name)
}

// Recipients parses the public keys to which the PKI is encrypted. It refuses a backup with keys and without any.
func Recipients(keys []string, withoutKeys bool) ([]age.Recipient, error) {
	out, err := archive.Recipients(keys)
	if err == nil && len(out) == 0 && !withoutKeys {
		err = clierr.New(clierr.BadInput,
			"pass --recipient with the public key of an operator who may restore, age1… (age-keygen creates one), "+
				"or pass --without-keys",
			"the backup would contain private keys, and no recipient to encrypt them to")
	}
	return out, err
}

// unused refuses a name that another backup of the same second has.
func (c *Create) unused(ctx context.Context, name string) error {
	taken, err := c.Target.List(ctx, name+"/")
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		return clierr.New(clierr.Conflict, "rerun the command in a second",
			"%s already has a backup %q", c.Target, name)
	}
	return nil
}

// connect connects to the etcds of all shards before any of them begins, so that they begin together.
func (c *Create) connect(ctx context.Context) []*source {
	var all []*source
	for _, shard := range c.Topology.Shards() {
		if len(c.Shards) == 0 || slices.Contains(c.Shards, shard.ID()) {
			all = append(all, &source{shard: shard})
		}
	}
	_ = parallel.Each(ctx, all, func(ctx context.Context, s *source) error {
		c.component(s.shard.ID(), run.Running, "connecting to its etcd")
		if s.client, s.doubt, s.err = c.Source.Snapshots(ctx, s.shard); s.err != nil {
			return nil
		}
		if s.doubt != nil {
			c.emit(run.Event{Scope: run.Note, Message: s.doubt.Error()})
		}
		var status etcd.Status
		status, s.err = s.client.Status(ctx)
		s.version = status.Version
		return nil
	})
	return all
}

// copyAll copies the snapshots of all etcds concurrently.
func (c *Create) copyAll(ctx context.Context, m *archive.Manifest, sources []*source) error {
	stage, err := archive.NewStage(c.Target)
	if err != nil {
		return err
	}
	defer stage.Remove()
	var all sync.WaitGroup
	for _, s := range sources {
		all.Go(func() {
			if s.err == nil {
				s.err = c.copy(ctx, stage.Dir, m.Name, s)
			}
			if s.err != nil {
				_ = c.failComponent(s.shard.ID(), s.err)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, s := range sources {
		if s.err != nil {
			m.Partial[s.shard.ShardName()] = run.FirstLine(s.err)
			continue
		}
		m.Databases = append(m.Databases, s.database)
		m.Files[s.database.File] = s.file
	}
	for _, shard := range c.Topology.Shards() {
		if !slices.ContainsFunc(sources, func(s *source) bool { return s.shard == shard }) {
			m.Partial[shard.ShardName()] = "it was not selected"
		}
	}
	for _, id := range c.elsewhere() {
		m.Partial[id.ShortName()] = "the setup file does not have it; kcpctl backup create --applied uses the setup " +
			"that was applied last"
	}
	if len(m.Databases) == 0 {
		return clierr.New(clierr.Failed, "kcpctl status shows the state of the shards",
			"no shard has given a snapshot; nothing was written")
	}
	first := slices.MinFunc(m.Databases, func(a, b archive.Database) int { return a.Began.Compare(b.Began) })
	last := slices.MaxFunc(m.Databases, func(a, b archive.Database) int { return a.Began.Compare(b.Began) })
	m.Skew = last.Began.Sub(first.Began)
	return nil
}

// compare finds out what does not fit together.
func (c *Create) compare(m *archive.Manifest, sources []*source) {
	c.step(stepCompare, run.Running, "")
	var shards []*content.Shard
	for _, s := range sources {
		if s.content != nil {
			shards = append(shards, s.content)
		}
	}
	m.Tears = content.Tears(shards, missing(m))
	if len(m.Tears) == 0 {
		c.step(stepCompare, run.Done, "the snapshots fit together")
		return
	}
	c.step(stepCompare, run.Done,
		fmt.Sprintf("%d workspaces or objects do not fit together; kcpctl backup verify lists them", len(m.Tears)))
}

// finish writes all other files, and then the manifest.
func (c *Create) finish(ctx context.Context, m *archive.Manifest, files map[string][]byte) error {
	for _, name := range []string{archive.FileSetup, archive.FileRecord, archive.FileKeys} {
		raw, ok := files[name]
		if !ok {
			continue
		}
		if err := c.Target.Put(ctx, path.Join(m.Name, name), bytes.NewReader(raw)); err != nil {
			return err
		}
		m.Files[name] = archive.FileOf(raw)
	}
	return m.Write(ctx, c.Target)
}

// incomplete is the error of a backup without some of the shards that it was to have.
func (c *Create) incomplete(m *archive.Manifest) error {
	ids := c.elsewhere()
	for _, shard := range c.Topology.Shards() {
		ids = append(ids, shard.ID())
	}
	var errs []error
	for _, id := range ids {
		why, left := m.Partial[id.ShortName()]
		if left && (len(c.Shards) == 0 || slices.Contains(c.Shards, id)) {
			errs = append(errs, fmt.Errorf("%s is not in the backup: %s", id, why))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return clierr.New(clierr.Unknown, "the others are in "+m.Name+"; kcpctl status shows what is wrong", "%w",
		errors.Join(errs...))
}

// elsewhere are the shards of the installation that the setup file lacks: it is older than what was applied.
func (c *Create) elsewhere() []topology.ID {
	var out []topology.ID
	for id, d := range c.known.Data {
		if id.Kind().IsShard() && !d.Removed && c.Topology.Component(id) == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// missing are the shards of the installation without a snapshot.
func missing(m *archive.Manifest) []string {
	var out []string
	for name := range m.Partial {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
