package run_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// predecessor notes what is done to it.
type predecessor struct {
	did []string
	// release and stop are the errors of Release and StopServers.
	release, stop error
	objects       int
}

func (p *predecessor) Release(_ context.Context, objects []render.Object) error {
	p.did, p.objects = append(p.did, "release"), len(objects)
	return p.release
}

func (p *predecessor) StopServers(context.Context) error {
	p.did = append(p.did, "stop")
	return p.stop
}

func (p *predecessor) RemoveObjects(context.Context) error {
	p.did = append(p.did, "remove")
	return nil
}

func TestTakeOver(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		p := &predecessor{}
		takeOver := func() error {
			w.events = nil
			return (&run.TakeOver{
				Topology: w.top, Runtime: w.rt, Predecessor: p, Name: "other", Observe: w.observe(t), Now: time.Now,
			}).Run(t.Context())
		}
		err := takeOver()
		require.ErrorContains(t, err, `kcp "demo" does not serve instead of other yet: `)
		require.Equal(t, "run kcpctl up first", clierr.Hint(err))
		w.mustRun(t)
		w.edit("front-proxy/main")
		require.ErrorContains(t, takeOver(), "nothing was removed", "a change that is not applied yet")
		w.mustRun(t)
		require.Empty(t, p.did)

		w.rt.States("shard/alpha", waiting("starting"), isReady())
		p.release = errors.New("it runs")
		require.ErrorContains(t, takeOver(), "it runs")
		require.Equal(t, []string{"release"}, p.did, "nothing is removed that would come back")
		require.NotZero(t, p.objects)
		p.release, p.stop, p.did = nil, errors.New("boom"), nil
		require.ErrorContains(t, takeOver(), "boom")
		require.Equal(t, []string{"release", "stop"}, p.did, "objects stay while their servers run")
		p.stop, p.did = nil, nil
		require.NoError(t, takeOver())
		require.Equal(t, []string{"release", "stop", "remove"}, p.did)
		require.Equal(t, []string{"running terminating", "done gone"}, w.of("servers of other"))
		require.Equal(t, []string{"running deleting", "done deleted"}, w.of("objects of other"))
	})
}
