package deploy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A setup with a hundred shards has 1,600 objects, whose comparison takes many seconds.
func TestLongComparisonsShowTheirProgress(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.Equal(t, []string{"running", "done 25 create, 0 change, 0 delete, 0 unchanged"}, w.Of("plan"))
		w.Runtime.On("Plan", func() error { time.Sleep(3 * time.Second); return nil })
		w.edit("root-shard")
		w.MustRun(t)
		of := func(n int) string { return fmt.Sprintf("running compared %d of 25 objects", n) }
		require.Equal(t, []string{"running", of(3), of(5)}, w.Of("plan")[:3])
		require.Len(t, w.Of("plan"), 21, "two comparisons, up to nine lines each")
		require.Equal(t, "done 0 create, 1 change, 0 delete, 24 unchanged", w.Of("plan")[20])
		require.Empty(t, w.Of("pending edits"))
		w.Up.Options.Unedited = []byte("an edit that changes no object")
		w.MustRun(t)
		require.Equal(t, of(3), w.Of("pending edits")[0])
		require.Equal(t, "done 0 create, 0 change, 0 delete, 25 unchanged", w.Of("pending edits")[9])
	})
}

func TestUnapplied(t *testing.T) {
	const edited = runtest.Minimal + "spec: {shards: [{name: alpha, replicas: 2}]}\n"
	for name, tc := range map[string]struct {
		text, remembered string
		only             []topology.ID
		spoiled          bool
		waits            []string
	}{
		"the file is what was applied": {text: runtest.Sharded, remembered: "the setup"},
		"a run was interrupted":        {text: runtest.Sharded, remembered: "the setup", spoiled: true},
		"an edit that changes nothing": {text: runtest.Sharded, remembered: "the setup, in other words"},
		"an edit":                      {text: edited, remembered: "another", waits: []string{"Deployment", "PodDisruptionBudget"}},
		"an edit of a component in question": {text: edited, remembered: "another", only: []topology.ID{"shard/alpha"},
			waits: []string{"Deployment", "PodDisruptionBudget"}},
		"an edit of another component": {text: edited, remembered: "another", only: []topology.ID{"front-proxy/main"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
				w.MustRun(t)
				if tc.spoiled {
					w.edit("shard/alpha")
				}
				p, err := deploy.Unapplied(t.Context(), topologytest.Build(t, tc.text), w.Runtime, []byte(tc.remembered), tc.only, time.Now(), nil)
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
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Up.Setup = []byte("kind: Setup\nmetadata:\n  name: demo\nspec: {}\n")
		w.MustRun(t)
		w.edit("shard/alpha")
		require.True(t, w.Unapplied(t, w.Topology,
			"kind: Setup\nmetadata:\n  name: demo\n  installation: demo-1\nspec: {}\n").Empty())
		require.False(t, w.Unapplied(t, w.Topology, "kind: Setup\nmetadata:\n  name: demo\nspec:\n  installation: x\n").Empty())
	})
}

// What was never applied to its end has no file that could differ.
func TestUnappliedBeforeTheFirstUp(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		p, err := deploy.Unapplied(t.Context(), w.Topology, w.Runtime, []byte("the setup"), nil, time.Now(), nil)
		require.NoError(t, err)
		require.True(t, p.Empty())
	})
}

// A run that changes only certificates tells pending edits of the file from what the last up has left.
func TestPendingEditsAndAnUnfinishedRun(t *testing.T) {
	edited := runtest.Minimal + "spec: {shards: [{name: alpha, replicas: 2}]}\n"
	for name, tc := range map[string]struct {
		text       string
		unfinished bool
		running    bool
		want       error
		says       string
	}{
		"nothing is pending": {text: runtest.Sharded},
		"an edit":            {text: edited, want: deploy.ErrUnapplied, says: ": 1 create, 1 change, 0 delete, "},
		"an unfinished run":  {text: runtest.Sharded, unfinished: true, want: deploy.ErrUnfinished},
		"an edit and an unfinished one": {text: edited, unfinished: true, want: deploy.ErrUnfinished,
			says: ": 1 create, 1 change, 0 delete, "},
		"an edit that another run applies": {text: edited, unfinished: true, running: true,
			says: "another run is changing the setup: kcpctl up (pid 7)"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
				w.MustRun(t)
				if tc.unfinished {
					w.Runtime.OtherRun(w.Runtime.PKI())
				}
				next := newWorld(t, topologytest.Build(t, tc.text), w.Runtime)
				next.Runtime.Use(next.Topology)
				next.Up.Options.Unedited = []byte("the setup in the file")
				hint := "run kcpctl up"
				if tc.running {
					next.Runtime.Current = &record.Run{Command: "kcpctl up", PID: 7}
					hint = "wait until it has ended"
				}
				_, err := next.Run(t)
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
				require.Empty(t, next.Runtime.Calls())
			})
		})
	}
}

// Every edit that up refuses is a refusal of the comparison, and a problem in the events of the run.
func TestRefusalsOfAComparison(t *testing.T) {
	for name, tc := range losses {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+tc.from, func(t *testing.T, w *world) {
				w.MustRun(t)
				next := newWorld(t, topologytest.Build(t, runtest.Minimal+tc.to), w.Runtime)
				next.Runtime.Use(next.Topology)
				_, refused := next.Run(t)
				var told []string
				for _, e := range next.Events {
					for _, p := range e.Problems {
						require.NotEmpty(t, p.Hint)
						told = append(told, p.Subject)
					}
				}
				require.Equal(t, tc.want, told)
				next.Events = nil
				c, err := next.Up.Compare(t.Context(), nil)
				require.NoError(t, err)
				require.Subset(t, clierr.Problems(c.Refused), clierr.Problems(refused), "up ends with the first of them")
				require.Empty(t, next.Events)
				require.Empty(t, next.Runtime.Calls())
			})
		})
	}
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		c, err := w.Up.Compare(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, c.Refused)
	})
}
