package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
	"github.com/kcpctl/kcpctl/internal/runtime/local/ports"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// fakeBinaries is a directory with a stand-in for each of kcp's binaries.
var fakeBinaries string

func TestMain(m *testing.M) {
	code, err := withFakeBinaries(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withFakeBinaries(run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "kcpctl-fake-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	fakeBinaries = dir
	// The go command knows only of files that the test itself reads: without this, a cached result could be older.
	if _, err := os.ReadFile("testdata/fake/main.go"); err != nil {
		return 1, err
	}
	fake := filepath.Join(dir, "kcp")
	if out, err := exec.Command("go", "build", "-o", fake, "./testdata/fake").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the fake: %w: %s", err, out)
	}
	for _, name := range []string{"kcp-front-proxy", "cache-server"} {
		if err := os.Link(fake, filepath.Join(dir, name)); err != nil {
			return 1, err
		}
	}
	return run(), nil
}

const (
	// patience is more than any wait of a test takes, even on a busy machine.
	patience     = time.Minute
	pollInterval = 20 * time.Millisecond
)

// portsOfTests is how many ports the setups of a test have at most.
const portsOfTests = 20

// machine is a state directory on this machine, and the commands of a test that use it.
type machine struct {
	*testing.T
	state string
	clock *testutil.Clock
	base  int32
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, state: filepath.Join(t.TempDir(), "kcpctl"), clock: testutil.NewClock()}
	m.base = freeBase(t)
	t.Cleanup(func() { m.stopAll() })
	return m
}

// freeBase returns the first of the ports of a test. They are below those that the system hands out. Tests of other
// processes look elsewhere first, and all of the ports are free now.
func freeBase(t *testing.T) int32 {
	const first, blocks, apart = 20000, 100, 100
	for i := range blocks {
		base := int32(first + (os.Getpid()+i)%blocks*apart)
		if allFree(base) {
			return base
		}
	}
	t.Fatal("no ports are free")
	return 0
}

func allFree(base int32) bool {
	for port := base; port < base+portsOfTests; port++ {
		if !ports.Free(port) {
			return false
		}
	}
	return true
}

// file is a setup file with a cache server, a root shard, one more shard and a front-proxy.
func file(extra ...string) string {
	return strings.Join(append([]string{`apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  cacheServer: {}
  shards:
  - name: alpha`}, extra...), "\n") + "\n"
}

// fakeMode makes the shard of file misbehave.
func fakeMode(mode string) string {
	return fmt.Sprintf(`    podTemplate: {spec: {terminationGracePeriodSeconds: 1, containers: [{name: kcp, env: [{name: FAKE, value: %s}]}]}}`, mode)
}

// session is one run of kcpctl.
type session struct {
	*machine
	rt      *Runtime
	t       *topology.Topology
	objects []render.Object
	pki     *pki.State
}

// open is the start of every command.
func (m *machine) open(text string) *session {
	m.Helper()
	f, err := setup.Parse("kcp.yaml", []byte(text))
	require.NoError(m, err)
	l, err := NewLayout(m.state, f.Setup.Metadata.Name, m.base)
	require.NoError(m, err)
	top, err := l.Topology(f.Setup)
	require.NoError(m, err)
	s := &session{machine: m, t: top}
	s.rt = New(s.t, l, Options{
		Version: "test", User: "me", Now: m.clock.Now, References: filepath.Join(m.state, "user"),
		Binaries: Binaries{Dir: fakeBinaries, Source: download.Source{Dir: filepath.Join(m.state, "cache"), OS: runtime.GOOS, Arch: runtime.GOARCH}},
	})
	state, err := s.rt.Store().Load(m.Context())
	require.NoError(m, err)
	res, err := pki.Ensure(s.t, state, pki.Options{Now: time.Now()})
	require.NoError(m, err)
	s.pki = res.State
	s.objects, err = render.Objects(s.t, res.State)
	require.NoError(m, err)
	return s
}

func (s *session) plan() *plan.Plan {
	s.Helper()
	p, err := s.rt.Plan(s.Context(), s.objects, run.PlanOptions{})
	require.NoError(s, err)
	return p
}

// preflight runs all checks before an up.
func (s *session) preflight() error {
	s.Helper()
	subject := &check.Subject{Topology: s.t, Runtime: s.rt, Objects: s.objects, Now: time.Now}
	return check.Run(s.Context(), subject, check.Preflight).Err()
}

// apply is up without waiting.
func (s *session) apply() *plan.Plan {
	s.Helper()
	ctx := s.Context()
	require.NoError(s, s.preflight())
	p := s.plan()
	ctx, unlock, err := s.rt.Lock(ctx)
	require.NoError(s, err)
	defer unlock()
	require.NoError(s, s.rt.Store().Save(ctx, s.pki))
	require.NoError(s, s.rt.Begin(ctx, p, &record.Record{}))
	for _, c := range s.t.Components {
		require.NoError(s, s.rt.Apply(ctx, p.Of(c.ID()), run.PlanOptions{}))
	}
	require.NoError(s, s.rt.Finish(ctx, p, &record.Record{}, plan.Applied{Setup: []byte("setup")}))
	return p
}

// lock takes the lock of the setup, as a run does until it has finished.
func (s *session) lock() (unlock func()) {
	s.Helper()
	_, unlock, err := s.rt.Lock(s.Context())
	require.NoError(s, err)
	return unlock
}

// look is one look of a run that watches: at a component, under the lock.
func (s *session) look(id topology.ID) ready.State {
	s.Helper()
	defer s.lock()()
	st, err := s.rt.State(s.Context(), s.t.Component(id))
	require.NoError(s, err)
	return st
}

// up is a whole command: it applies and waits until all is ready.
func (m *machine) up(text string) *plan.Plan {
	m.Helper()
	s := m.open(text)
	p := s.apply()
	for _, c := range s.t.Components {
		s.await(c.ID(), func(st ready.State) bool { return st.Ready })
	}
	require.NoError(m, s.rt.Close())
	return p
}

// await asks for a component's state until it is as wanted.
func (s *session) await(id topology.ID, want func(ready.State) bool) ready.State {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for {
		st, err := s.rt.State(ctx, s.t.Component(id))
		require.NoError(s, err)
		if want(st) {
			return st
		}
		if strings.HasSuffix(st.Reason, ", restarting") { // else the age of a process would depend on this machine's speed
			s.clock.Advance(time.Second)
		}
		select {
		case <-ctx.Done():
			s.Fatalf("%s does not change: %+v", id, st)
		case <-time.After(pollInterval):
		}
	}
}

// down is a whole command.
func (m *machine) down(text string) {
	m.Helper()
	s := m.open(text)
	items, err := s.rt.Objects(m.Context())
	require.NoError(m, err)
	require.NoError(m, s.rt.Delete(m.Context(), items))
}

// pids are the processes of the setup, by component, as the records have them. All are alive.
func (m *machine) pids() map[string]int {
	m.Helper()
	out := map[string]int{}
	l := m.layout()
	files, err := filepath.Glob(l.path(dirProcesses, "*.json"))
	require.NoError(m, err)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		rec, err := l.record(name)
		require.NoError(m, err)
		require.True(m, rec.Alive(), "%s: %+v", name, rec)
		out[name] = rec.PID
	}
	return out
}

func (m *machine) layout() *Layout {
	m.Helper()
	l, err := NewLayout(m.state, "demo", 0)
	require.NoError(m, err)
	return l
}

// stopAll ends every process of the machine's state directory, whatever the test did to the records.
func (m *machine) stopAll() {
	all, err := process.List()
	require.NoError(m, err)
	for _, p := range all {
		if filepath.Dir(p.Args[0]) == fakeBinaries && p.Runs(filepath.Base(p.Args[0]), m.state) {
			if id, err := process.Identify(p.PID); err == nil {
				require.NoError(m, id.Stop(context.Background(), 0))
			}
		}
	}
	// A dead process may hold its port a moment longer, which the next test needs.
	require.Eventually(m, func() bool { return allFree(m.base) }, patience, pollInterval)
}

// changed are the objects that a plan changes, with its verb.
func changed(p *plan.Plan) []string {
	var out []string
	for _, it := range p.Items {
		if it.Action != plan.Unchanged {
			out = append(out, string(it.Action)+" "+it.String())
		}
	}
	return out
}
