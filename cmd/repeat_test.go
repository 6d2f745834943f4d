package cmd

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// restarting is a runtime whose API server does not answer at times.
type restarting struct {
	*fakeruntime.Runtime
	down func() bool
	// asked counts how often it was asked which clusters cannot be reached.
	asked int
}

var errRestarts = errors.New("the API server restarts")

func (r *restarting) Store() pki.Store { return storeOf{r.Runtime.Store(), r.down} }

func (r *restarting) Unreachable(ctx context.Context) []plan.Unreachable {
	r.asked++
	return r.Runtime.Unreachable(ctx)
}

type storeOf struct {
	pki.Store
	down func() bool
}

func (s storeOf) Load(ctx context.Context) (*pki.State, error) {
	if s.down() {
		return nil, errRestarts
	}
	return s.Store.Load(ctx)
}

// repeated runs a command for some time on a kcp whose API server does not answer in a part of it.
func repeated(t *testing.T, lasts time.Duration, down func(since time.Duration) bool, args ...string) (code int, out, errs string, rt *restarting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt = &restarting{Runtime: bringUp(t)}
		rt.Kcp.Always("GET /health", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"health": "true"}})
		for _, path := range []string{
			"/clusters/root/api", "/clusters/root/apis/apis.kcp.io/v1alpha1/apiexportendpointslices",
			"/clusters/*/apis/apis.kcp.io/v1alpha1/apiexports", "/metrics",
		} {
			rt.Kcp.Always("GET "+path, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not in this test"))
		}
		begin := time.Now()
		rt.down = func() bool { return down(time.Since(begin)) }
		path := filepath.Join(t.TempDir(), "kcp.yaml")
		require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
		env, stdout, stderr := fakeEnv()
		env.Now = time.Now
		env.Open = func(top *topology.Topology, _ kube.Options) (run.Runtime, error) {
			rt.Use(top)
			return rt, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		code = Main(ctx, append(args, "-f", path), env)
		out, errs = stdout.String(), stderr.String()
	})
	return code, out, errs, rt
}

func TestStatusWatchSurvivesARestart(t *testing.T) {
	code, out, errs, _ := repeated(t, 30*time.Second, func(since time.Duration) bool {
		return since > 5*time.Second && since < 15*time.Second
	}, "status", "--watch")
	require.Contains(t, errs, "note: "+errRestarts.Error())
	require.Equal(t, 0, code, "it continues until it is interrupted: %s", errs)
	require.Contains(t, out, "front-proxy/main")
	code, _, errs, _ = repeated(t, 30*time.Second, func(time.Duration) bool { return true }, "status", "--watch")
	require.Equal(t, 1, code, errs)
}

func TestCheckWaitsForTheAPIServer(t *testing.T) {
	_, _, errs, _ := repeated(t, time.Minute, func(since time.Duration) bool { return since < 4*time.Second }, "check", "--wait", "10s")
	require.Contains(t, errs, "waiting: "+errRestarts.Error())
	code, _, errs, _ := repeated(t, time.Minute, func(time.Duration) bool { return true }, "check", "--wait", "10s")
	require.Equal(t, 5, code, errs)
	require.Contains(t, errs, errRestarts.Error())
}

// A round in which no server answers is not repeated at once, and each round asks which clusters answer.
func TestTopWatchPauses(t *testing.T) {
	code, out, errs, rt := repeated(t, 22*time.Second, func(time.Duration) bool { return false }, "top", "--watch")
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "front-proxy/main: ")
	require.NotContains(t, out, "MiB", "no server answers")
	require.InDelta(t, 5, rt.asked, 1)
}
