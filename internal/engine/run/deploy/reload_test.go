package deploy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// withController has a component whose process reads its files again, and an agent that does not run.
const withController = runtest.Minimal + `spec:
  workloads: {apis: [services]}
  agents:
  - name: widgets
    workspace: root:widgets
    paused: true
    publishedResources:
    - {name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}"}}}
`

// reloadTime is how long a pod may use earlier files.
const reloadTime = 6*time.Minute + 30*time.Second

// finishes rotates authorities, waits, and finishes. It returns how long the previous authorities stay after the switch
// was applied, and the last titles.
func (w *world) finishes(t *testing.T, after time.Duration, cas ...topology.CA) (stayed time.Duration, titles []string) {
	t.Helper()
	var all []pki.Rotation
	for _, ca := range cas {
		all = append(all, pki.RotationOf(ca))
	}
	rotate, _, seen := w.rotation(all...)
	_, err := rotate.Run(t.Context())
	require.NoError(t, err)
	*seen = nil
	switched := time.Now()
	time.Sleep(after)
	w.Runtime.On("Save", func() error { stayed = time.Since(switched); return nil })
	require.NoError(t, rotate.Finish(t.Context()))
	return stayed, *seen
}

const waits = "wait until all components use the new certificates"

func TestFinishWaitsForProcessesThatReadTheirFilesAgain(t *testing.T) {
	inWorld(t, withController, func(t *testing.T, w *world) {
		w.MustRun(t)
		for _, ca := range []topology.CA{topology.ServerCA, topology.ClientCA} {
			stayed, titles := w.finishes(t, 0, ca)
			require.InDelta(t, reloadTime, stayed, float64(time.Second), ca)
			require.Contains(t, titles, waits)
			require.Contains(t, w.Of("certificates in use")[0], "running workloads/controller: changed files are read again within 6m30s, which ends at ")

			stayed, titles = w.finishes(t, 2*time.Minute, ca)
			require.InDelta(t, reloadTime, stayed, float64(time.Second), "only the rest of the time")
			require.Contains(t, titles, waits)

			_, titles = w.finishes(t, reloadTime, ca)
			require.NotContains(t, titles, waits, "the time has passed")
		}
		_, titles := w.finishes(t, 0, topology.RequestHeaderCA)
		require.NotContains(t, titles, waits, "the component does not use it")
	})
}

// A run that dies may have applied the switch in its last moment.
func TestFinishWaitsAfterAnInterruption(t *testing.T) {
	inWorld(t, withController, func(t *testing.T, w *world) {
		w.MustRun(t)
		rotate, _, titles := w.rotation(pki.RotationOf(topology.ClientCA))
		n := 0
		w.Runtime.On("Finish", func() error {
			if n++; n == 2 {
				return errKilled
			}
			return nil
		})
		_, err := rotate.Run(t.Context())
		require.ErrorIs(t, err, errKilled)
		time.Sleep(time.Hour)
		*titles = nil
		require.NoError(t, rotate.Finish(t.Context()))
		require.Contains(t, *titles, waits)
	})
}

func TestFinishDoesNotWaitWithoutSuchComponents(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		_, titles := w.finishes(t, 0, topology.ServerCA, topology.ClientCA)
		require.NotContains(t, titles, waits)
	})
}

// Clients that trust only an authority that cannot certify its successor must trust that before it signs.
func TestSwitchWaitsWhereClientsWouldBeCutOff(t *testing.T) {
	inWorld(t, withController, func(t *testing.T, w *world) {
		w.MustRun(t)
		keyless := w.Runtime.PKI().CAs[topology.ServerCA]
		keyless.Key = nil
		w.Runtime.PKI().CAs[topology.ServerCA] = keyless
		rotate, _, titles := w.rotation(pki.RotationOf(topology.ServerCA))
		_, err := rotate.Run(t.Context())
		require.NoError(t, err)
		require.NotContains(t, *titles, waits)
		_, err = rotate.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{
			"distribute a new server CA", "make sure that the new server CA is known everywhere", waits, "switch to the new server CA",
		}, *titles)
	})
}
