package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/testutil/etcdfile"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const sharded = topologytest.Header + "spec: {cacheServer: {}, shards: [{name: alpha}]}\n"

// memory is an installation in memory: its record, PKI and objects, and the data of its servers.
type memory struct {
	state   *pki.State
	record  *record.Record
	history []plan.Revision
	objects []plan.Item
	data    map[topology.ID]string
	aside   []string
	// refused are the components whose data cannot be replaced, with the reasons.
	refused map[topology.ID]string
	// elsewhere means that the backup was taken in another place.
	elsewhere bool
	// witnessed is the largest serial that is noted outside of the record.
	witnessed int64
	// fails is called before each write, which returns its error.
	fails func(call string) error
}

func (m *memory) write(call string) error {
	if m.fails == nil {
		return nil
	}
	return m.fails(call)
}

// store is the PKI of the installation.
type store struct{ *memory }

func (s store) String() string { return "memory" }

func (s store) Load(context.Context) (*pki.State, error) {
	if s.state == nil {
		return &pki.State{CAs: map[topology.CA]pki.Authority{}, Leaves: map[pki.LeafKey]pki.Pair{}}, nil
	}
	return s.state, nil
}

func (s store) Save(_ context.Context, state *pki.State) error {
	if err := s.write("save the PKI"); err != nil {
		return err
	}
	s.state = state
	return nil
}

func (s store) DeleteLeaves(context.Context, []pki.LeafKey) error { return nil }

func (m *memory) Store() pki.Store { return store{m} }

func (m *memory) Record(context.Context) (*record.Record, error) {
	raw, err := m.record.Encode("test", nil)
	if err != nil || m.record.Empty() {
		return &record.Record{}, err
	}
	rec, err := record.Decode(raw)
	if err == nil && m.witnessed > 0 {
		rec.Witness(m.witnessed)
	}
	return rec, err
}

func (m *memory) History(context.Context) ([]plan.Revision, error) { return m.history, nil }
func (m *memory) Objects(context.Context) ([]plan.Item, error)     { return m.objects, nil }

func (m *memory) Keep(_ context.Context, r *record.Record) error {
	if err := m.write("keep the record"); err != nil {
		return err
	}
	raw, err := r.Encode("test", nil)
	if err != nil {
		return err
	}
	m.record, err = record.Decode(raw)
	return err
}

func (m *memory) Lock(ctx context.Context) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

func (m *memory) Ended(context.Context, error) {}

func (m *memory) Delete(_ context.Context, items []plan.Item) error {
	for _, it := range items {
		if err := m.write("stop " + it.Name); err != nil {
			return err
		}
		m.objects = slices.DeleteFunc(m.objects, func(o plan.Item) bool { return o.Name == it.Name })
	}
	return nil
}

func (m *memory) PurgeData(context.Context, topology.ID) error {
	return errors.New("not part of a restore")
}

func (m *memory) Placeable(_ context.Context, all []*topology.Component) error {
	var errs []error
	for _, c := range all {
		if why, ok := m.refused[c.ID()]; ok {
			errs = append(errs, errors.New(why))
		}
	}
	return errors.Join(errs...)
}

func (m *memory) WasHere(context.Context, record.Data) (bool, error) { return !m.elsewhere, nil }

func (m *memory) PrepareRestore(context.Context) error { return m.write("prepare") }

// PlaceData fails if anything still runs.
func (m *memory) PlaceData(ctx context.Context, c *topology.Component, data run.Restored) (run.Placed, error) {
	if len(m.objects) > 0 {
		return run.Placed{}, fmt.Errorf("%s still runs", m.objects[0].Name)
	}
	if err := m.write("place " + string(c.ID())); err != nil {
		return run.Placed{}, err
	}
	raw, err := os.ReadFile(data.File)
	if err != nil {
		return run.Placed{}, err
	}
	var out run.Placed
	if m.data[c.ID()] != string(raw) { // else, an interrupted restore has placed it
		if out, err = m.SetAside(ctx, c, data); err != nil {
			return out, err
		}
		m.data[c.ID()] = string(raw)
	}
	out.Data = map[topology.ID]record.Data{
		c.ID(): {Etcd: record.EtcdEmbedded, Volumes: map[string]string{string(c.ID()): "new"}},
	}
	return out, nil
}

func (m *memory) SetAside(_ context.Context, c *topology.Component, data run.Restored) (run.Placed, error) {
	if err := m.write("set aside " + string(c.ID())); err != nil {
		return run.Placed{}, err
	}
	was, ok := m.data[c.ID()]
	if !ok {
		return run.Placed{}, nil
	}
	m.aside = append(m.aside, was)
	delete(m.data, c.ID())
	return run.Placed{Aside: []string{string(c.ID()) + "." + data.Suffix}}, nil
}

// world is an installation with etcds, and a directory for backups.
type world struct {
	*memory
	top    *topology.Topology
	etcds  map[topology.ID]*fakeetcd.Etcd
	target archive.Target
	dir    string
	key    *age.X25519Identity
	now    time.Time
	events []run.Event
}

// root and alpha are objects of two shards that fit together.
func rootVersions() []etcdfile.Version {
	return []etcdfile.Version{
		{Key: "/registry/core.kcp.io/logicalclusters/customresources/root/cluster",
			Value: `{"metadata":{"annotations":{"kcp.io/path":"root"}}}`},
		{Key: "/registry/apis.kcp.io/apiexports/customresources/root/tenancy.kcp.io",
			Value: `{"status":{"identityHash":"` + hash + `"}}`},
		{Key: "/registry/tenancy.kcp.io/workspaces/" + hash + "/root/team",
			Value: `{"metadata":{"uid":"u1"},"spec":{"cluster":"c1"}}`},
	}
}

func alphaVersions() []etcdfile.Version {
	return []etcdfile.Version{
		{Key: "/registry/core.kcp.io/logicalclusters/customresources/c1/cluster",
			Value: `{"metadata":{"annotations":{"kcp.io/path":"root:team"}},"spec":{"owner":{"cluster":"root","name":"team","uid":"u1"}}}`},
		{Key: "/registry/core/secrets/c1/default/s", Value: "secret-of-a-workspace"},
	}
}

const hash = "0d16f2962e0a71491d6fa2cec34001134f6c03a5cd55265c0533e9b9a7346ab6"

func newWorld(t *testing.T) *world {
	t.Helper()
	top := topologytest.Build(t, sharded)
	now := time.Now()
	state := pkitest.Issue(t, top, now)
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	w := &world{
		memory: &memory{
			state: state, record: (&record.Record{}).With(state,
				map[topology.ID]record.Data{"root-shard": {Etcd: "managed etcd/root"}}),
			history: []plan.Revision{{Number: 1, Setup: []byte(sharded)}}, data: map[topology.ID]string{},
		},
		top: top, etcds: map[topology.ID]*fakeetcd.Etcd{}, dir: t.TempDir(), key: key, now: now,
	}
	for id, versions := range map[topology.ID][]etcdfile.Version{"root-shard": rootVersions(), "shard/alpha": alphaVersions()} {
		c := top.Component(top.Component(id).Storage.Etcd)
		w.etcds[c.ID()] = fakeetcd.New(t, c, state)
		w.etcds[c.ID()].SetSnapshot(etcdfile.Snapshot(t, versions...), 0)
	}
	w.target, err = archive.Open(filepath.Join(w.dir, "backups"), os.Getenv)
	require.NoError(t, err)
	return w
}

// DialMember connects to a member of one of the etcds.
func (w *world) DialMember(ctx context.Context, c *topology.Component, pod string) (net.Conn, error) {
	return w.etcds[c.ID()].DialMember(ctx, c, pod)
}

func (w *world) MemberStart(context.Context, *topology.Component) (map[string]string, error) {
	return nil, nil
}
func (w *world) SetMemberStart(context.Context, *topology.Component, map[string]string) error {
	return nil
}
func (w *world) EmptyMember(context.Context, *topology.Component, string) error { return nil }

func (w *world) clock() time.Time { return w.now }

func (w *world) create() *backup.Create {
	return &backup.Create{
		Topology: w.top, Archive: w.memory, Target: w.target,
		Recipients: []string{w.key.Recipient().String()}, Kcpctl: "test",
		Source: &backup.Managed{
			Topology: w.top, Members: etcds.Members{Store: w.Store(), Pods: w, Now: time.Now},
		},
		Observe: func(e run.Event) { w.events = append(w.events, e) }, Now: w.clock,
	}
}

func (w *world) verify(t *testing.T, name string) *backup.Verified {
	t.Helper()
	v := &backup.Verify{Target: w.target, Name: name, Report: func(topology.ID, run.Status, string) {}}
	out, err := v.Run(t.Context())
	require.NoError(t, err)
	return out
}

func (w *world) restore(name string) *backup.Restore {
	return &backup.Restore{
		Topology: w.top, Runtime: w.memory, Place: w.memory, Target: w.target, Name: name,
		Identities: []age.Identity{w.key},
		Observe:    func(run.Event) {}, Now: w.clock,
	}
}

// lose is the loss of a whole installation.
func (w *world) lose() {
	w.state, w.record, w.history, w.objects = nil, &record.Record{}, nil, nil
	clear(w.data)
}

// files returns the files of the target, with their content.
func (w *world) files(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := w.target.List(t.Context(), "")
	require.NoError(t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(w.dir, "backups", e.Name))
		require.NoError(t, err)
		out[e.Name] = raw
	}
	return out
}

func names(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

var _ backup.Source = (*backup.Managed)(nil)

// failingTarget fails to write one file.
type failingTarget struct {
	archive.Target
	file string
	err  error
}

func (f failingTarget) Put(ctx context.Context, name string, content io.Reader) error {
	if filepath.Base(name) == f.file {
		return f.err
	}
	return f.Target.Put(ctx, name, content)
}
