package fakeruntime

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// On runs a function before a call, which fails with its error: Load, Record, Plan, "State etcd/root", and all calls
// that Calls lists.
func (r *Runtime) On(call string, do func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks[call] = do
}

// States scripts the next states of a component; the last one stays.
func (r *Runtime) States(id topology.ID, states ...ready.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[id] = states
}

// Calls returns the calls that write, and those that lock, in order: Lock, Unlock, Save, Begin, Finish, Purge,
// "Apply namespaces", "Apply etcd/root", "Delete shard/alpha".
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Forget clears the calls so far.
func (r *Runtime) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

// PKI returns what the store keeps.
func (r *Runtime) PKI() *pki.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pki
}

// OtherRun acts as a concurrent run that saves the PKI and ends before it applies anything.
func (r *Runtime) OtherRun(s *pki.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pki, r.stale = s, true
}

// ForgetRecord deletes the record, as for an installation that an earlier kcpctl has made.
func (r *Runtime) ForgetRecord() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = nil
}

// Backup returns a function that brings the present record and PKI back, as a restore of the Secrets of a namespace
// does.
func (r *Runtime) Backup() (restore func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, state := r.record, r.pki
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.record, r.pki = rec, state
	}
}

// Use continues with another topology of the same setup.
func (r *Runtime) Use(top *topology.Topology) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topology = top
}

// Ref returns the object that was applied under a name as users see it.
func (r *Runtime) Ref(name string) plan.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref := range r.live {
		if ref.String() == name {
			return ref
		}
	}
	return plan.Ref{}
}

// Add adds an object as another run would.
func (r *Runtime) Add(it plan.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.Live = &unstructured.Unstructured{Object: map[string]any{}}
	r.live[it.Ref] = it
}

// Edit changes a live object, as another manager would.
func (r *Runtime) Edit(ref string, change func(*unstructured.Unstructured)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range r.live {
		if it.Ref.String() == ref {
			change(it.Live)
		}
	}
}

// EarlierRecord makes the record that of an earlier kcpctl, which has no serial.
func (r *Runtime) EarlierRecord() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record, r.noted = r.record.Purge(), 0
	r.record.Serial = 0
}

// Becomes replaces the topology of the setup.
func (r *Runtime) Becomes(t *topology.Topology) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topology = t
}
