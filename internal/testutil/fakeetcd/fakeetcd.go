// Package fakeetcd is a managed etcd for tests. Its pods have volumes, start as etcd members do, and handle the
// requests of kcpctl over TLS with the certificates of a setup. It reports members that restart without their data.
package fakeetcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// Etcd is a managed etcd, and the run.MemberRuntime of its pods.
type Etcd struct {
	t         testing.TB
	component *topology.Component
	state     *pki.State

	mu      sync.Mutex
	members []*member
	pods    []*pod
	lastID  uint64
	env     map[string]string
	calls   []string
	hook    func(call string) error
	forgot  []string
	keys    keys
	// alarms are the IDs of members by the type of the alarm that names them; 0 names none.
	alarms map[string][]uint64
	// snapshot is what the members send. They stop after breaksAfter bytes, unless that is zero.
	snapshot    []byte
	breaksAfter int
}

// SetSnapshot sets the snapshot that members send. They stop after a number of bytes, unless that is zero.
func (e *Etcd) SetSnapshot(raw []byte, breaksAfter int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot, e.breaksAfter = raw, breaksAfter
}

// member is a member as the majority knows it.
type member struct {
	id  uint64
	url string
	// name is empty until the member has started.
	name string
}

// pod is a pod and its volume.
type pod struct {
	// id is the member ID in the volume, or 0 if the volume is empty.
	id       uint64
	stopped  bool
	listener *fakekcp.Listener
}

// New returns an etcd with healthy members. The state has its certificates.
func New(t testing.TB, c *topology.Component, state *pki.State) *Etcd {
	e := &Etcd{t: t, component: c, state: state, hook: func(string) error { return nil }}
	for i := range c.Replicas {
		e.lastID++
		e.members = append(e.members, &member{id: e.lastID, url: c.PeerURL(i), name: c.Member(i)})
		e.pods = append(e.pods, &pod{id: e.lastID})
		e.serve(i)
	}
	return e
}

// Lose deletes the data of a member, and restarts its pod.
func (e *Etcd) Lose(i int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods[i].id = 0
	e.start()
}

// Stop stops a pod.
func (e *Etcd) Stop(i int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods[i].stopped = true
}

// Raise raises an alarm of a member.
func (e *Etcd) Raise(alarm string, i int32) { e.raise(alarm, e.pods[i].id) }

// RaiseUnknown raises an alarm that names no member.
func (e *Etcd) RaiseUnknown(alarm string) { e.raise(alarm, 0) }

// RaiseOf raises an alarm of a member by its ID, which needs not be one of the etcd.
func (e *Etcd) RaiseOf(alarm string, id uint64) { e.raise(alarm, id) }

func (e *Etcd) raise(alarm string, id uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.alarms == nil {
		e.alarms = map[string][]uint64{}
	}
	e.alarms[alarm] = append(e.alarms[alarm], id)
}

// On sets a function that is called before each write. The write returns its error.
func (e *Etcd) On(hook func(call string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hook = hook
}

// Calls returns the writes: "hold", "remove", "disarm", "empty", "add", "join", "release".
func (e *Etcd) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// Forgot returns the members that restarted with a known ID and without its data.
func (e *Etcd) Forgot() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.forgot)
}

// Env returns the environment with which members without data start, if it is overridden.
func (e *Etcd) Env() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.env)
}

// change records a write, unless the function of On fails.
func (e *Etcd) change(call string) error {
	if err := e.hook(call); err != nil {
		return err
	}
	e.calls = append(e.calls, call)
	return nil
}

// start starts every unhealthy pod once, which the kubelet does repeatedly (etcd: server/etcdserver/bootstrap.go).
func (e *Etcd) start() {
	for i, p := range e.pods {
		if p.id != 0 || p.stopped {
			continue // with data it ignores its environment
		}
		name, url := e.component.Member(int32(i)), e.component.PeerURL(int32(i))
		at := slices.IndexFunc(e.members, func(m *member) bool { return m.url == url })
		switch {
		case e.env == nil && at >= 0 && e.members[at].name != "":
			// The member is already bootstrapped.
		case e.env == nil:
			e.lastID++
			p.id = e.lastID // it forms a separate cluster
		case !strings.Contains(e.env[render.EnvInitialCluster], name+"="):
			// The member does not find itself.
		case at < 0 || e.env[render.EnvInitialClusterState] != "existing":
			// The number of members differs.
		case e.members[at].name != "":
			e.forgot = append(e.forgot, name)
			p.id = e.members[at].id
		default:
			e.members[at].name, p.id = name, e.members[at].id
		}
	}
}

// DialMember connects to a running pod.
func (e *Etcd) DialMember(ctx context.Context, _ *topology.Component, name string) (net.Conn, error) {
	e.mu.Lock()
	e.start()
	p := e.pod(name)
	runs := p != nil && !p.stopped && e.member(p.id) != nil
	e.mu.Unlock()
	if !runs {
		return nil, fmt.Errorf("connect to %s: connection refused", name)
	}
	return p.listener.Dial(ctx)
}

func (e *Etcd) pod(name string) *pod {
	for i, p := range e.pods {
		if e.component.Member(int32(i)) == name {
			return p
		}
	}
	return nil
}

func (e *Etcd) member(id uint64) *member {
	i := slices.IndexFunc(e.members, func(m *member) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return e.members[i]
}

// majority reports whether a majority of the members runs.
func (e *Etcd) majority() bool {
	n := 0
	for _, p := range e.pods {
		if !p.stopped && p.id != 0 && e.member(p.id) != nil {
			n++
		}
	}
	return n > len(e.members)/2
}

// MemberStart returns the value of SetMemberStart.
func (e *Etcd) MemberStart(context.Context, *topology.Component) (map[string]string, error) {
	return e.Env(), nil
}

// SetMemberStart sets how members without data start.
func (e *Etcd) SetMemberStart(_ context.Context, c *topology.Component, env map[string]string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	call := "hold"
	for i := range c.Replicas {
		if strings.Contains(env[render.EnvInitialCluster], c.Member(i)+"=") {
			call = "join"
		}
	}
	if env == nil {
		call = "release"
	}
	if err := e.change(call); err != nil {
		return err
	}
	e.env = env
	e.start()
	return nil
}

// EmptyMember deletes the data of a member.
func (e *Etcd) EmptyMember(_ context.Context, _ *topology.Component, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.change("empty"); err != nil {
		return err
	}
	p := e.pod(name)
	if p == nil {
		return errors.New("there is no such pod")
	}
	p.id, p.stopped = 0, false
	e.start()
	return nil
}
