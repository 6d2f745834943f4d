package run_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A setup with a hundred shards has 1,600 objects, whose comparison takes many seconds.
func TestLongComparisonsShowTheirProgress(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.mustRun(t)
		require.Equal(t, []string{"running", "done 25 create, 0 change, 0 delete, 0 unchanged"}, w.of("plan"))
		w.rt.On("Plan", func() error { time.Sleep(3 * time.Second); return nil })
		w.edit("root-shard")
		w.mustRun(t)
		of := func(n int) string { return fmt.Sprintf("running compared %d of 25 objects", n) }
		require.Equal(t, []string{"running", of(3), of(5)}, w.of("plan")[:3])
		require.Len(t, w.of("plan"), 21, "two comparisons, up to nine lines each")
		require.Equal(t, "done 0 create, 1 change, 0 delete, 24 unchanged", w.of("plan")[20])
		require.Empty(t, w.of("pending edits"))
		w.up.Options.Unedited = []byte("an edit that changes no object")
		w.mustRun(t)
		require.Equal(t, of(3), w.of("pending edits")[0])
		require.Equal(t, "done 0 create, 0 change, 0 delete, 25 unchanged", w.of("pending edits")[9])
	})
}

func TestUnapplied(t *testing.T) {
	const edited = minimal + "spec: {shards: [{name: alpha, replicas: 2}]}\n"
	for name, tc := range map[string]struct {
		text, remembered string
		only             []topology.ID
		spoiled          bool
		waits            []string
	}{
		"the file is what was applied": {text: sharded, remembered: "the setup"},
		"a run was interrupted":        {text: sharded, remembered: "the setup", spoiled: true},
		"an edit that changes nothing": {text: sharded, remembered: "the setup, in other words"},
		"an edit":                      {text: edited, remembered: "another", waits: []string{"Deployment", "PodDisruptionBudget"}},
		"an edit of a component in question": {text: edited, remembered: "another", only: []topology.ID{"shard/alpha"},
			waits: []string{"Deployment", "PodDisruptionBudget"}},
		"an edit of another component": {text: edited, remembered: "another", only: []topology.ID{"front-proxy/main"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sharded, func(t *testing.T, w *world) {
				w.mustRun(t)
				if tc.spoiled {
					w.edit("shard/alpha")
				}
				p, err := run.Unapplied(t.Context(), topologytest.Build(t, tc.text), w.rt, []byte(tc.remembered), tc.only, time.Now(), nil)
				require.NoError(t, err)
				var waits []string
				for _, it := range p.Items {
					if it.Action != plan.Unchanged {
						waits = append(waits, it.Kind)
					}
				}
				require.Equal(t, len(tc.waits) == 0, p.Empty())
				require.ElementsMatch(t, tc.waits, waits)
			})
		})
	}
}

// The ID of the installation, which up writes into the file when it has ended, is not an edit: an interrupted rotation
// continues.
func TestUnappliedAfterTheInstallationWasWritten(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.up.Setup = []byte("kind: Setup\nmetadata:\n  name: demo\nspec: {}\n")
		w.mustRun(t)
		w.edit("shard/alpha")
		require.True(t, unapplied(t, w, w.top,
			"kind: Setup\nmetadata:\n  name: demo\n  installation: demo-1\nspec: {}\n").Empty())
		require.False(t, unapplied(t, w, w.top, "kind: Setup\nmetadata:\n  name: demo\nspec:\n  installation: x\n").Empty())
	})
}

// What was never applied to its end has no file that could differ.
func TestUnappliedBeforeTheFirstUp(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		p, err := run.Unapplied(t.Context(), w.top, w.rt, []byte("the setup"), nil, time.Now(), nil)
		require.NoError(t, err)
		require.True(t, p.Empty())
	})
}

func unapplied(t *testing.T, w *world, top *topology.Topology, text string) *plan.Plan {
	t.Helper()
	p, err := run.Unapplied(t.Context(), top, w.rt, []byte(text), nil, time.Now(), nil)
	require.NoError(t, err)
	return p
}

// A run that changes only certificates tells pending edits of the file from what the last up has left.
func TestPendingEditsAndAnUnfinishedRun(t *testing.T) {
	edited := minimal + "spec: {shards: [{name: alpha, replicas: 2}]}\n"
	for name, tc := range map[string]struct {
		text       string
		unfinished bool
		running    bool
		want       error
		says       string
	}{
		"nothing is pending": {text: sharded},
		"an edit":            {text: edited, want: run.ErrUnapplied, says: ": 1 create, 1 change, 0 delete, "},
		"an unfinished run":  {text: sharded, unfinished: true, want: run.ErrUnfinished},
		"an edit and an unfinished one": {text: edited, unfinished: true, want: run.ErrUnfinished,
			says: ": 1 create, 1 change, 0 delete, "},
		"an edit that another run applies": {text: edited, unfinished: true, running: true,
			says: "another run is changing the setup: kcpctl up (pid 7)"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sharded, func(t *testing.T, w *world) {
				w.mustRun(t)
				if tc.unfinished {
					w.rt.OtherRun(w.rt.PKI())
				}
				next := newWorld(t, topologytest.Build(t, tc.text), w.rt)
				next.rt.Use(next.top)
				next.up.Options.Unedited = []byte("the setup in the file")
				hint := "run kcpctl up"
				if tc.running {
					next.rt.Current = &record.Run{Command: "kcpctl up", PID: 7}
					hint = "wait until it has ended"
				}
				_, err := next.run(t)
				if tc.want == nil && !tc.running {
					require.NoError(t, err)
					return
				}
				if tc.want != nil {
					require.ErrorIs(t, err, tc.want)
				}
				require.ErrorContains(t, err, tc.says)
				require.NotContains(t, err.Error(), ": 0 create, 0 change, 0 delete")
				require.Contains(t, clierr.Hint(err), hint)
				require.Empty(t, next.rt.Calls())
			})
		})
	}
}

// Every edit that up refuses is a refusal of the comparison, and a problem in the events of the run.
func TestRefusalsOfAComparison(t *testing.T) {
	for name, tc := range losses {
		t.Run(name, func(t *testing.T) {
			inWorld(t, minimal+tc.from, func(t *testing.T, w *world) {
				w.mustRun(t)
				next := newWorld(t, topologytest.Build(t, minimal+tc.to), w.rt)
				next.rt.Use(next.top)
				_, refused := next.run(t)
				var told []string
				for _, e := range next.events {
					for _, p := range e.Problems {
						require.NotEmpty(t, p.Hint)
						told = append(told, p.Subject)
					}
				}
				require.Equal(t, tc.want, told)
				next.events = nil
				c, err := next.up.Compare(t.Context(), nil)
				require.NoError(t, err)
				require.Subset(t, clierr.Problems(c.Refused), clierr.Problems(refused), "up ends with the first of them")
				require.Empty(t, next.events)
				require.Empty(t, next.rt.Calls())
			})
		})
	}
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		c, err := w.up.Compare(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, c.Refused)
	})
}
