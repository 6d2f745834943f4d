package workspace_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// A workspace has the time of every component: under load, minutes pass until kcp has initialized it.
func TestUpWaitsForAWorkspaceUntilItsTimeout(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.below.Kcp.Phase("root:teams", "Initializing")
		go func() {
			status := func(status map[string]any) {
				o := w.below.Kcp.In("root/workspaces/teams")
				o.Object["status"] = status
				w.below.Kcp.PutIn("root/workspaces/teams", o)
			}
			time.Sleep(4 * time.Minute)
			status(map[string]any{"phase": "Initializing", "conditions": []any{map[string]any{
				"type": "WorkspaceInitialized", "status": "False", "reason": "InitializerExists", "message": "Initializers still exist: [system:apibindings]",
			}}})
			time.Sleep(5 * time.Minute)
			status(map[string]any{"phase": "Ready"})
		}()
		w.mustRun(t)
		require.Equal(t, contents, w.below.Kcp.Contents())
		require.True(t, slices.ContainsFunc(w.events, func(e run.Event) bool {
			return e.Name == "workspace/root:teams" &&
				e.Message == "workspace root:teams: initializing: waits for system:apibindings"
		}), "it says what it waits for")
	})
}

func TestAFailedWorkspaceFailsOnlyWhatIsInIt(t *testing.T) {
	inWorld(t, teams+"  - {name: other}\n", func(t *testing.T, w *world) {
		w.below.Kcp.Phase("root:teams", "Scheduling")
		_, err := w.run(t)
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.ErrorContains(t, err, "workspace/root:teams: workspace root:teams is not Ready: timed out after 10m0s: scheduling")
		require.ErrorContains(t, err, "2 components that need them were skipped")
		require.Positive(t, w.when("canary", run.Done))
		require.Positive(t, w.when("workspace/root:other", run.Done))
		require.Positive(t, w.when("workspace/"+teamA, run.Skipped))
		require.Equal(t, -1, w.when("shard/alpha", run.Failed))

		teams := w.below.Kcp.In("root/workspaces/teams")
		teams.Object["status"] = map[string]any{"phase": "Ready"}
		w.below.Kcp.PutIn("root/workspaces/teams", teams)
		w.mustRun(t)
		require.Subset(t, w.below.Kcp.Contents(), contents, "the same command continues")
	})
}

func TestRefusedObjects(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		refused := fakekcp.Refuse(http.StatusForbidden, "Forbidden", "no permission to bind")
		w.below.Kcp.Always("apply apibindings", refused)
		_, err := w.run(t)
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.ErrorContains(t, err, "workspace/root:teams:team-a: kcp does not accept APIBinding/widgets.example.com in root:teams:team-a: no permission to bind")
	})
}

func TestKcpDoesNotAnswer(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.below.Kcp.PutIn("root:teams/workspaces/team-b", nil)
		silent := fakekcp.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "starting")
		w.below.Kcp.Script("get logicalclusters", silent, silent)
		p, _, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
		require.NoError(t, err)
		require.ErrorContains(t, p.NoAnswer, "kcp does not answer: starting")
		require.Equal(t, len(contents), p.Count(plan.Unknown))
		require.False(t, p.Empty())
		require.Contains(t, p.Summary(), "8 unknown (on workspaces)")
		w.mustRun(t)
		require.Equal(t, contents, w.below.Kcp.Contents(), "up compares when kcp answers")
	})
}

// What the setup no longer has stays recorded while its shard does not answer, and does not prevent the rest of a run.
func TestAShardOfFormerObjectsDoesNotAnswer(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		down := fakekcp.Refuse(http.StatusBadGateway, "", "the shard is down")
		for _, r := range []string{"apibindings", "clusterroles", "clusterrolebindings"} {
			w.below.Kcp.Always("get "+r, down)
		}
		at := strings.Index(teams, "    - name: team-a")
		w.use(t, teams[:at]+"    - {name: team-b}\n    - {name: team-c}\n")
		require.Equal(t, []string{"apply root:teams/workspaces/team-c"}, w.mustRun(t))
		rec, err := w.below.Record(t.Context())
		require.NoError(t, err)
		require.Len(t, rec.Placed, len(contents)+1)

		w.use(t, strings.Replace(teams, "{clusterRole: view, groups: [team-a]}, ", "", 1))
		p, _, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
		require.NoError(t, err)
		require.ErrorContains(t, p.NoAnswer, "the shard is down")
		require.Contains(t, unknown(p), "ClusterRoleBinding/demo:role:view in "+teamA)
		for _, r := range []string{"apibindings", "clusterroles", "clusterrolebindings"} {
			w.below.Kcp.Never("get " + r)
		}
		require.Equal(t, []string{"delete " + teamA + "/clusterrolebindings/demo:role:view"}, filter(w.mustRun(t), "delete"))
	})
}

// A shard that has just started does not serve all APIs: what is below a Workspace that it does not show stays recorded.
func TestFormerObjectsOnAShardThatHasJustStarted(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.use(t, strings.Replace(teams, "{clusterRole: view, groups: [team-a]}, ", "", 1))
		w.below.Kcp.Always("get workspaces", fakekcp.Answer{Code: http.StatusNotFound, Body: "404 page not found"})
		p, _, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
		require.NoError(t, err)
		require.ErrorContains(t, p.NoAnswer, "kcp does not serve tenancy.kcp.io")
		require.Contains(t, unknown(p), "ClusterRoleBinding/demo:role:view in "+teamA)
		w.below.Kcp.Never("get workspaces")
		require.Equal(t, []string{"delete " + teamA + "/clusterrolebindings/demo:role:view"}, filter(w.mustRun(t), "delete"))
	})
}

// A finalizer can keep a workspace indefinitely, and kcp may not answer while it is waited for.
func TestTheUserIsToldWhatADeletionWaitsFor(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		const name = "root:teams/workspaces/team-b"
		o := w.below.Kcp.In(name)
		o.SetFinalizers([]string{"example.com/gone"})
		w.below.Kcp.PutIn(name, o)
		w.use(t, strings.Replace(teams, "    - {name: team-b}\n", "", 1))
		w.up.Options.PruneData = []topology.ID{"workspace/root:teams:team-b"}
		w.below.On("Delete", func() error { // the next request is the deletion
			w.below.Kcp.Script("delete workspaces", fakekcp.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "starting"))
			return nil
		})
		time.AfterFunc(time.Minute, func() {
			require.Equal(t, []string{"waiting for Workspace/team-b in root:teams to be gone; its finalizers are example.com/gone"}, w.told)
			w.below.Kcp.Script("get workspaces", fakekcp.Refuse(http.StatusBadGateway, "", "the shard is down"))
			w.below.Kcp.PutIn(name, nil)
		})
		w.mustRun(t)
		require.Nil(t, w.below.Kcp.In(name))
	})
}

// A workspace that is not Ready does not show what it has.
func TestFormerObjectsInAWorkspaceThatIsNotReady(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		phase := func(phase string) {
			o := w.below.Kcp.In("root:teams/workspaces/team-a")
			o.Object["status"] = map[string]any{"phase": phase}
			w.below.Kcp.PutIn("root:teams/workspaces/team-a", o)
		}
		phase("Unavailable")
		w.use(t, strings.Replace(teams, "{clusterRole: view, groups: [team-a]}, ", "", 1))
		p, _, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
		require.NoError(t, err)
		require.ErrorContains(t, p.NoAnswer, "workspace root:teams:team-a is not Ready: unavailable")
		require.Equal(t, []string{"ClusterRoleBinding/demo:role:view in " + teamA}, unknown(p))
		phase("Ready")
		require.Equal(t, []string{"delete " + teamA + "/clusterrolebindings/demo:role:view"}, filter(w.mustRun(t), "delete"))
	})
}

func unknown(p *plan.Plan) []string {
	var out []string
	for _, it := range p.Items {
		if it.Action == plan.Unknown {
			out = append(out, it.String())
		}
	}
	return out
}

// A front-proxy answers for a shard that does not run. With kcpctl up --local, it runs again after this command.
func TestAShardDoesNotAnswer(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		down := fakekcp.Refuse(http.StatusBadGateway, "", "the shard is down")
		w.below.Kcp.Script("get apibindings", down)
		p, _, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
		require.NoError(t, err)
		require.ErrorContains(t, p.NoAnswer, "the shard is down")
		require.Equal(t, 1, p.Count(plan.Unknown))
		require.False(t, p.Empty())
		w.mustRun(t)
		require.Equal(t, contents, w.below.Kcp.Contents())
	})
}
