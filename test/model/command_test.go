package model_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/cmd"
	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
)

// op is a write request.
type op struct {
	verb string
	key
}

// mishap is a disturbance of a command at one of its writes.
type mishap struct {
	// at is the number of the write, from 1. Zero means never.
	at int
	// after means that the write is executed before the mishap.
	after bool
	// crash kills the command.
	crash bool
	// cut is how long no API server responds.
	cut time.Duration
	// meanwhile is what another operator does at that moment.
	meanwhile func()
}

// command is a run of kcpctl.
type command struct {
	world  *world
	who    *operator
	args   []string
	holder kube.Holder
	mishap mishap
	cancel context.CancelFunc

	// home is the place with the state of the setup. It is known if ready is set.
	home  place
	setup string

	// The lock of the world guards the following fields.
	writes   int
	changes  int // writes that changed something, except to the Lease
	dead     bool
	cutUntil time.Time
	closers  []func()
	// overtaken means that another command has run since the last write: it may have installed everything again.
	overtaken bool
	ended     bool // connections that HTTP opens in advance, in the background, are refused
	output    bytes.Buffer
}

var errDead = errors.New("the process was killed")

func (s *command) String() string {
	return s.who.name + ": kcpctl " + s.who.shorten(strings.Join(s.args, " "))
}

// is reports whether the command has a name.
func (s *command) is(words ...string) bool {
	return len(s.args) >= len(words) && slices.Equal(s.args[:len(words)], words)
}

func (s *command) has(flag string) bool { return slices.Contains(s.args, flag) }

// values returns the values of a flag.
func (s *command) values(flag string) []string {
	var out []string
	for i, a := range s.args[:max(0, len(s.args)-1)] {
		if a == flag {
			out = append(out, s.args[i+1])
		}
	}
	return out
}

// allowed returns what the command accepts a risk for.
func (s *command) allowed(r risk.Risk) []string {
	var out []string
	for _, a := range s.args {
		if names, ok := strings.CutPrefix(a, "--allow="+string(r)+"="); ok {
			out = append(out, names)
		}
	}
	return out
}

// mayLose reports whether the flags of the command allow the loss of the data of a component.
func (s *command) mayLose(id topology.ID) bool {
	return slices.ContainsFunc(s.allowed(risk.DataChange), func(v string) bool {
		return topology.ID(v) == id || ownerOf(topology.ID(v)) == id
	})
}

// mayRotate reports whether the command may change authorities.
func (s *command) mayRotate() bool {
	return s.is("certs", "rotate-ca") || s.is("certs", "rotate-service-account-key") || s.has("--replace-authorities") || len(s.allowed(risk.LostRecord)) > 0
}

// mayReturn reports whether the command may use authorities again that were removed. With restored Secrets, only what runs
// shows that they were: after down, the user answers for them.
func (s *command) mayReturn() bool {
	return s.mayRotate() || s.has("--allow=restored-record")
}

// read handles a read request.
func (s *command) read(ctx context.Context, _ *cluster) error {
	w := s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.dead:
		return errDead
	case ctx.Err() != nil:
		return ctx.Err()
	case time.Now().Before(s.cutUntil):
		return unavailable()
	}
	return nil
}

func unavailable() error { return apierrors.NewServiceUnavailable("no API server answers") }

// write handles a write request. A renewal of the Lease does not count.
func (s *command) write(ctx context.Context, c *cluster, o op, do func() error) error {
	w := s.world
	w.mu.Lock()
	now := s.mishap.at > 0 && !s.renews(o)
	if now {
		s.writes++
		now = s.writes == s.mishap.at
	}
	w.mu.Unlock()
	if err := s.read(ctx, c); err != nil {
		return err
	}
	if now && !s.mishap.after {
		if err := s.happens(o); err != nil {
			return err
		}
		if err := s.read(context.WithoutCancel(ctx), c); err != nil {
			return err
		}
	}
	err := do()
	if now && s.mishap.after {
		if err := s.happens(o); err != nil {
			return err
		}
	}
	return err
}

// renews reports whether a write of the Lease renews it.
func (s *command) renews(o op) bool {
	return o.resource == leases && s.world.holder(s.home, s.setup) == s.holder.String()
}

func (s *command) happens(o op) error {
	w := s.world
	w.mu.Lock()
	if s.mishap.cut > 0 {
		s.cutUntil = time.Now().Add(s.mishap.cut)
	}
	s.dead = s.mishap.crash
	w.mu.Unlock()
	w.logf("    at %s %s: %s", o.verb, o.key, s.mishap.what())
	if s.dead {
		s.cancel()
		return errDead
	}
	if s.mishap.meanwhile != nil {
		s.mishap.meanwhile()
		w.mu.Lock()
		w.actor, s.overtaken = s, true
		w.mu.Unlock()
	}
	if s.mishap.cut > 0 {
		return unavailable()
	}
	return nil
}

func (m mishap) what() string {
	out := "meanwhile"
	if m.crash {
		out = "killed"
	}
	if m.cut > 0 {
		out = "cut off for " + m.cut.String()
	}
	if m.after {
		return out + " (after it)"
	}
	return out
}

// run runs the command and returns its exit code, or -1 if it was killed.
func (s *command) run() int {
	w := s.world
	w.mu.Lock()
	w.actor = s
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.cancel = cancel
	stream := func() *ui.Stream { return &ui.Stream{Writer: &s.output, Size: func() (int, int) { return 80, 24 }} }
	env := &cmd.Env{
		Streams: &ui.Streams{In: strings.NewReader(""), Out: stream(), Err: stream()},
		Now:     time.Now, Program: "kcpctl", Open: s.open,
		Getenv: func(name string) string {
			return map[string]string{"HOME": s.who.dir, "XDG_STATE_HOME": s.who.dir + "/state", "XDG_CACHE_HOME": s.who.dir + "/cache"}[name]
		},
	}
	code := cmd.Main(ctx, append(slices.Clone(s.args), "--file", s.who.file()), env)
	w.mu.Lock()
	s.ended = true
	closers := s.closers
	w.mu.Unlock()
	for _, end := range closers {
		end()
	}
	if s.dead {
		return -1
	}
	return code
}

// open returns a runtime on the clusters of the world, without kubeconfigs.
func (s *command) open(t *topology.Topology, o kube.Options) (run.Runtime, error) {
	o.Holder = s.holder
	o.API = func(c topology.Cluster) (*kube.API, error) {
		cl, err := s.who.cluster(c)
		if err != nil {
			return nil, err
		}
		return &kube.API{Context: c.Context, Dynamic: api{s: s, c: cl}, HTTP: &http.Client{Transport: discovery{s, cl}}}, nil
	}
	if d, ok := o.Store.(*pki.Directory); ok {
		o.Store = &directory{d, s}
	}
	home, err := s.who.cluster(t.Home)
	if err != nil {
		return nil, err
	}
	s.home, s.setup = place{home.name, t.Home.Namespace}, t.Name
	rt, err := kube.New(t, o)
	if err != nil {
		return nil, err
	}
	return &podless{rt, s}, nil
}

// directory is a PKI directory that reports to the world what is saved.
type directory struct {
	*pki.Directory
	s *command
}

func (f *directory) Save(ctx context.Context, state *pki.State) error {
	f.s.world.mu.Lock()
	dead := f.s.dead
	f.s.world.mu.Unlock()
	if dead {
		return errDead
	}
	if err := f.Directory.Save(ctx, state); err != nil {
		return err
	}
	f.s.world.mu.Lock()
	defer f.s.world.mu.Unlock()
	f.s.world.saved(f.s, state)
	return nil
}

// podless is the real runtime, with simulated pods.
type podless struct {
	run.Runtime
	s *command
}

func (r *podless) Facts() check.Facts { return check.Facts{} }

func (r *podless) PreflightPurge(context.Context) error { return nil }

func (r *podless) Replace(context.Context, *topology.Component) error { return nil }

func (r *podless) Logs(context.Context, *topology.Component, run.LogOptions, io.Writer) error {
	return nil
}

func (r *podless) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	if c.Kind == topology.Base || c.Kind == topology.Kubeconfig {
		return ready.State{Ready: true}, nil
	}
	cl, err := r.s.who.cluster(c.Cluster)
	if err != nil {
		return ready.State{}, err
	}
	if err := r.s.read(ctx, cl); err != nil {
		return ready.State{}, err
	}
	return r.s.world.state(cl, c), nil
}

// state returns the state of a component.
func (w *world) state(cl *cluster, c *topology.Component) ready.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	resource, all := deployments, w.servers
	if c.Kind == topology.Etcd {
		resource, all = statefulSets, w.etcds
	}
	o := cl.objects[key{resource, c.Cluster.Namespace, c.Object()}]
	if o == nil {
		return ready.State{Replicas: c.Replicas, Reason: "is not there"}
	}
	if p := all[key{cl.name + " " + resource, c.Cluster.Namespace, c.Object()}]; p != nil && p.store == nil {
		return ready.State{Replicas: c.Replicas, Reason: "its etcd does not answer"}
	}
	image := podOf(o).Containers[0].Image
	return ready.State{
		Ready: true, Replicas: c.Replicas, ReadyReplicas: c.Replicas, Version: image[strings.LastIndex(image, ":")+1:],
	}
}

func (r *podless) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	return r.s.dial(ctx, c)
}

// printed returns the shortened output of the command.
func (s *command) printed() string {
	out := s.who.shorten(strings.TrimSpace(s.output.String()))
	if n := strings.LastIndex(out, "kcpctl: "); n >= 0 {
		out = out[n:]
	}
	return fmt.Sprintf("%.400s", out)
}
