package faults

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// maxRepeats is how often a command may be rerun until it succeeds. On a busy machine a command can lose its Lease to
// nothing but a lack of time, which costs a rerun.
const maxRepeats = 4

// scenario is a command whose requests fail.
type scenario struct {
	name string
	args []string
	// running means that the setup is up before the command.
	running bool
	// settles means that a rerun after a success has nothing to do.
	settles bool
	// check checks the effects that only this command has, after its success. It may be nil.
	check func(t *testing.T, p *place, before *state)
	// restore resets a place for the next case. Nil means a new place for each case.
	restore func(t *testing.T, p *place, before *state)
}

func scenarios() []*scenario {
	return []*scenario{
		{name: "up", args: []string{"up"}, settles: true},
		{name: "add-shard", args: []string{"add-shard", added, "--etcd=managed"}, running: true, check: hasShard, restore: withoutShard},
		{name: "renew", args: []string{"certs", "renew"}, running: true, check: hasRenewed, restore: asItIs},
	}
}

// undisturbed is the result of a command without a fault.
type undisturbed struct {
	requests []request
	objects  map[string]string
	file     string
}

// base creates a place for the command of the scenario. It is removed at the end of its owner.
func (sc *scenario) base(owner, t *testing.T) *place {
	t.Helper()
	p, err := shared.newPlace(owner, sc.name)
	require.NoError(t, err)
	if sc.running {
		p.kcpctl(t, nil, "up").ok(t)
	}
	return p
}

// undisturbed runs the command without a fault.
func (sc *scenario) undisturbed(t *testing.T) *undisturbed {
	t.Helper()
	p := sc.base(t, t)
	before := p.state(t)
	r := p.kcpctl(t, nil, sc.args...).ok(t)
	p.finished(t, before, sc, r)
	objects, err := p.objects(t.Context())
	require.NoError(t, err)
	return &undisturbed{r.requests, objects, p.anywhere(p.state(t).file)}
}

// try runs the command with a fault, reruns it without, and requires the same result as without the fault.
func (sc *scenario) try(t *testing.T, p *place, want *undisturbed, f *fault, results *table) {
	o := outcome{scenario: sc.name, kind: f.name}
	defer func() { o.converged = !t.Failed(); results.add(o) }()
	before := p.state(t)
	first := p.kcpctl(t, f, sc.args...)
	o.code, o.hit = first.code, first.hit != ""
	t.Logf("%s in %s: %s: exit code %d after %s", f, p.Namespace, first.hit, first.code, first.took)
	first.understandable(t, f)
	last := p.kcpctl(t, nil, sc.args...)
	if first.code == 0 && sc.settles {
		require.Contains(t, last.output, nothingToDo, "the command reported success, and the rerun had changes")
	}
	for o.repeats = 1; last.code != 0 && o.repeats < maxRepeats; o.repeats++ {
		t.Logf("the rerun failed too: %s", last.output)
		last = p.kcpctl(t, nil, sc.args...)
	}
	p.finished(t, before, sc, last.ok(t))
	got, err := p.objects(t.Context())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want.objects, got), "objects differ from those of an undisturbed run")
	require.Equal(t, want.file, p.anywhere(p.state(t).file))
	p.released(t, f)
	if sc.restore != nil {
		sc.restore(t, p, before)
	}
}

// ok requires that the command has succeeded.
func (r result) ok(t *testing.T) result {
	t.Helper()
	require.Zero(t, r.code, "%s\n%s", r.line, r.output)
	return r
}

// understandable requires that a command with a failed request has either succeeded or printed an error.
func (r result) understandable(t *testing.T, f *fault) {
	t.Helper()
	require.NotContains(t, r.output, "panic:")
	require.NotContains(t, r.output, "goroutine ")
	if r.code == -1 {
		require.True(t, f.kills && r.hit != "", "killed by something else:\n%s", r.output)
		return
	}
	require.Contains(t, []int{0, 1, 3, 4}, r.code, r.output)
	if r.code != 0 {
		require.Contains(t, r.output, "kcpctl: ", "it failed without an error message")
		t.Logf("it printed: %s", r.output[strings.Index(r.output, "kcpctl: "):])
	}
}
