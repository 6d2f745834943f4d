package deploy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
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
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		p := &predecessor{}
		takeOver := func() error {
			w.Events = nil
			return (&deploy.TakeOver{
				Topology: w.Topology, Runtime: w.Runtime, Predecessor: p, Name: "other", Observe: w.Observe(t), Now: time.Now,
			}).Run(t.Context())
		}
		err := takeOver()
		require.ErrorContains(t, err, `kcp "demo" does not serve instead of other yet: `)
		require.Equal(t, "run kcpctl up first", clierr.Hint(err))
		w.MustRun(t)
		w.edit("front-proxy/main")
		require.ErrorContains(t, takeOver(), "nothing was removed", "a change that is not applied yet")
		w.MustRun(t)
		require.Empty(t, p.did)

		w.Runtime.States("shard/alpha", runtest.Waiting("starting"), runtest.IsReady())
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
		require.Equal(t, []string{"running terminating", "done gone"}, w.Of("servers of other"))
		require.Equal(t, []string{"running deleting", "done deleted"}, w.Of("objects of other"))
	})
}
