package workspace_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	teams = `spec:
  shards: [{name: alpha, labels: {tier: premium}}]
  workspaces:
  - name: teams
    type: universal
    workspaces:
    - name: team-a
      selector: {tier: premium}
      access: [{clusterRole: view, groups: [team-a]}, {name: own, users: [alice], rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]}]
      bindings: [{export: "root:widgets.example.com", acceptAllClaims: true}]
    - {name: team-b}
`
	teamA = "root:teams:team-a"
	bound = teamA + "/apibindings/widgets.example.com"
)

// contents are the objects of teams in kcp.
var contents = []string{
	"root/workspaces/teams",
	"root:teams/workspaces/team-a",
	"root:teams/workspaces/team-b",
	bound,
	teamA + "/clusterrolebindings/demo:access",
	teamA + "/clusterrolebindings/demo:role:own",
	teamA + "/clusterrolebindings/demo:role:view",
	teamA + "/clusterroles/demo:role:own",
}

// world is a setup with workspaces, and the fake that runs it.
type world struct {
	below  *fakeruntime.Runtime
	up     *deploy.Up
	events []run.Event
	told   []string
}

func inWorld(t *testing.T, spec string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{below: fakeruntime.New(t, topologytest.Build(t, topologytest.Header+spec))}
		w.below.Kcp.ServeObjects()
		w.use(t, spec)
		test(t, w)
	})
}

// use continues with another setup file.
func (w *world) use(t *testing.T, spec string) {
	t.Helper()
	top := topologytest.Build(t, topologytest.Header+spec)
	w.below.Use(top)
	rt := workspace.Wrap(w.below, top, nil, time.Now, func(note string) { w.told = append(w.told, note) })
	t.Cleanup(func() { _ = rt.Close() })
	w.up = &deploy.Up{
		Topology: top, Runtime: rt, Setup: []byte(spec), Now: time.Now, Network: fakeruntime.Network{},
		Options: deploy.UpOptions{Timeout: 10 * time.Minute},
		Observe: func(e run.Event) { w.events = append(w.events, e) },
	}
}

// run runs up, and returns what it has written in workspaces.
func (w *world) run(t *testing.T) ([]string, error) {
	t.Helper()
	w.events = nil
	_, err := w.up.Run(t.Context())
	return w.below.Kcp.Writes(), err
}

func (w *world) mustRun(t *testing.T) []string {
	t.Helper()
	writes, err := w.run(t)
	require.NoError(t, err)
	return writes
}

// diff returns what diff shows.
func (w *world) diff(t *testing.T) []string {
	t.Helper()
	p, drift, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
	require.NoError(t, err)
	var out []string
	for _, e := range diff.Entries(p, "demo", drift) {
		out = append(out, string(e.Action)+" "+e.Object)
	}
	return out
}

// when is the place of an event; -1 if there is none.
func (w *world) when(name string, s run.Status) int {
	return slices.IndexFunc(w.events, func(e run.Event) bool { return e.Name == name && e.Status == s })
}

func (w *world) notes() string {
	var out []string
	for _, e := range w.events {
		if e.Scope == run.Note {
			out = append(out, e.Message)
		}
	}
	return strings.Join(out, "\n")
}

func TestUpAppliesWorkspacesAfterTheCanary(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		writes := w.mustRun(t)
		require.Equal(t, contents, w.below.Kcp.Contents())
		require.Equal(t, "apply root/workspaces/teams", writes[0], "parents come first")
		require.Less(t, w.when("canary", run.Done), w.when("workspace/root:teams", run.Running))
		require.Less(t, w.when("workspace/root:teams", run.Done), w.when("workspace/"+teamA, run.Running))
		require.Equal(t, "alpha", w.below.Kcp.In("root:teams/workspaces/team-a").GetAnnotations()["core.kcp.io/shard"])

		require.Empty(t, w.mustRun(t), "a run without changes writes nothing")
		require.Empty(t, w.diff(t))
	})
}

func TestManualChangesAreShownAndReverted(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		name := teamA + "/clusterrolebindings/demo:role:view"
		changed := w.below.Kcp.In(name)
		changed.Object["subjects"] = []any{}
		w.below.Kcp.PutIn(name, changed)
		w.below.Kcp.PutIn("root:teams/workspaces/team-b", nil)
		require.ElementsMatch(t, []string{"change ClusterRoleBinding/demo:role:view in " + teamA, "create Workspace/team-b in root:teams"}, w.diff(t))
		require.ElementsMatch(t, []string{"apply " + name, "apply root:teams/workspaces/team-b"}, w.mustRun(t))
		require.Empty(t, w.diff(t))
	})
}

// An object that is being deleted looks unchanged, and disappears later.
func TestObjectsThatAreBeingDeletedAreRefused(t *testing.T) {
	for key, want := range map[string]string{
		bound:                          "APIBinding/widgets.example.com in " + teamA,
		"root:teams/workspaces/team-b": "Workspace/team-b in root:teams",
	} {
		inWorld(t, teams, func(t *testing.T, w *world) {
			w.mustRun(t)
			o := w.below.Kcp.In(key)
			now := metav1.Now()
			o.SetDeletionTimestamp(&now)
			o.SetFinalizers([]string{"example.com/hold"})
			w.below.Kcp.PutIn(key, o)
			writes, err := w.run(t)
			require.EqualError(t, err, want+" is being deleted; its finalizers are example.com/hold")
			require.Equal(t, "wait until it is gone, and rerun the command", clierr.Hint(err))
			require.Empty(t, writes)
			w.below.Kcp.PutIn(key, nil)
			require.Equal(t, []string{"apply " + key}, w.mustRun(t))
		})
	}
}

func TestForeignObjectsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		labels  map[string]string
		manager string
		// forced is the conflict that remains with --force-conflicts.
		forced string
	}{
		"of a user":               {nil, "kubectl-create", ""},
		"of another installation": {map[string]string{topology.LabelInstallation: "other-1"}, "kcpctl, installation other-1", "kcpctl, installation other-1"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, teams, func(t *testing.T, w *world) {
				w.mustRun(t)
				team := w.below.Kcp.In("root:teams/workspaces/team-b")
				team.SetLabels(tc.labels)
				team.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "kubectl-create"}}
				w.below.Kcp.PutIn("root:teams/workspaces/team-b", team)

				writes, err := w.run(t)
				conflict, ok := errors.AsType[*deploy.ConflictError](err)
				require.True(t, ok, "%v", err)
				require.Empty(t, writes)
				require.Len(t, conflict.Conflicts, 1)
				require.Equal(t, tc.manager, conflict.Conflicts[0].Manager)
				require.Equal(t, "Workspace/team-b in root:teams", conflict.Conflicts[0].Object)

				w.up.Options.Force = true
				_, err = w.run(t)
				if tc.forced == "" {
					require.NoError(t, err)
					return
				}
				conflict, ok = errors.AsType[*deploy.ConflictError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, tc.forced, conflict.Conflicts[0].Manager)
			})
		})
	}
}

func TestObjectsThatTheSetupNoLongerHas(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.use(t, strings.NewReplacer(
			"{clusterRole: view, groups: [team-a]}, ", "", "bindings: [{export: \"root:widgets.example.com\", acceptAllClaims: true}]", "bindings: []",
			"    - {name: team-b}\n", "").Replace(teams))
		require.Equal(t, []string{"delete " + teamA + "/clusterrolebindings/demo:role:view"}, filter(w.mustRun(t), "delete"),
			"roles are pruned, and data is kept")
		require.Contains(t, w.notes(), "workspace/root:teams:team-b: the setup no longer has Workspace/team-b in root:teams; kept")
		require.Contains(t, w.notes(), "pass --prune-data workspace/root:teams:team-a")
		require.Empty(t, w.diff(t))
		require.Empty(t, w.mustRun(t))
		require.Contains(t, w.notes(), "kept", "every run names it")

		w.up.Options.PruneData = []topology.ID{"workspace/root:teams:team-b"}
		require.Equal(t, []string{"delete root:teams/workspaces/team-b"}, w.mustRun(t))
		require.NotNil(t, w.below.Kcp.In(bound))
		writes, err := w.run(t)
		require.Equal(t, clierr.BadInput, clierr.Code(err))
		require.ErrorContains(t, err, "--prune-data workspace/root:teams:team-b: nothing of it is kept")
		require.Empty(t, writes)
	})
}

func TestObjectsThatChangeBeforeTheyAreDeleted(t *testing.T) {
	const role = teamA + "/clusterrolebindings/demo:role:view"
	for annotation, refused := range map[string]bool{"internal.kcp.io/replicate": false, "example.com/note": true} {
		t.Run(annotation, func(t *testing.T) {
			inWorld(t, teams, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.use(t, strings.Replace(teams, "{clusterRole: view, groups: [team-a]}, ", "", 1))
				w.below.On("Begin", func() error { // after the plan
					o := w.below.Kcp.In(role).DeepCopy()
					require.NoError(t, unstructured.SetNestedField(o.Object, "rbac.authorization.k8s.io", "metadata", "annotations", annotation))
					w.below.Kcp.PutIn(role, o)
					return nil
				})
				_, err := w.run(t)
				if refused {
					require.ErrorContains(t, err, "was changed after this run read it, and was not deleted")
					require.NotNil(t, w.below.Kcp.In(role))
					return
				}
				require.NoError(t, err, "kcp itself writes it")
				require.Nil(t, w.below.Kcp.In(role))
			})
		})
	}
}

func TestWorkspacesAreKeptWithWhatIsInThem(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.use(t, "spec: {shards: [{name: alpha, labels: {tier: premium}}]}\n")
		require.Empty(t, w.mustRun(t))
		require.Equal(t, contents, w.below.Kcp.Contents())

		w.up.Options.PruneData = []topology.ID{"workspace/root:teams"}
		_, err := w.run(t)
		require.ErrorContains(t, err, "workspace root:teams cannot be deleted: workspace root:teams:team-a is in it, and stays")
		w.up.Options.PruneData = []topology.ID{"workspace/root:teams", "workspace/root:teams:team-a", "workspace/root:teams:team-b"}
		writes := w.mustRun(t)
		require.ElementsMatch(t, []string{"delete " + bound, "delete root:teams/workspaces/team-a", "delete root:teams/workspaces/team-b", "delete root/workspaces/teams"},
			writes, "roles go with their workspace")
		require.Equal(t, "delete root/workspaces/teams", writes[3], "children come first")
		require.Empty(t, w.below.Kcp.Contents())
		rec, err := w.below.Record(t.Context())
		require.NoError(t, err)
		require.Empty(t, rec.Placed)
	})
}

// A workspace is not in another one because its path begins with that path.
func TestWorkspacesWithSimilarNames(t *testing.T) {
	const similar = `spec:
  workspaces:
  - {name: team}
  - {name: team-a, access: [{clusterRole: view, groups: [team-a]}]}
`
	for name, prune := range map[string][]topology.ID{"kept": nil, "deleted": {"workspace/root:team"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, similar, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.use(t, "spec:\n  workspaces: [{name: team-a}]\n")
				w.up.Options.PruneData = prune
				require.Contains(t, w.mustRun(t), "delete root:team-a/clusterrolebindings/demo:role:view")
				require.Equal(t, prune == nil, w.below.Kcp.In("root/workspaces/team") != nil)
				require.NotNil(t, w.below.Kcp.In("root/workspaces/team-a"))
			})
		})
	}
}

func TestChangesThatKcpDoesNotMake(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, want string }{
		"type": {
			"type: universal", "type: organization",
			"workspace root:teams has the type universal, and the setup has organization: kcp does not change the type of a workspace",
		},
		"selector": {
			"{tier: premium}\n      access", "{name: root}\n      access",
			"workspace root:teams:team-a is on shard alpha, which the selector name=root of the setup does not match: kcp does not move a workspace to another shard",
		},
		"export": {
			"root:widgets.example.com", "root:teams:widgets.example.com",
			"APIBinding/widgets.example.com in root:teams:team-a binds the APIExport root:widgets.example.com, and the setup has root:teams:widgets.example.com: kcp does not change the APIExport of an APIBinding",
		},
		"selector that still matches": {"{tier: premium}\n      access", "{name: alpha}\n      access", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, teams, func(t *testing.T, w *world) {
				w.mustRun(t)
				require.Contains(t, teams, tc.from)
				w.use(t, strings.Replace(teams, tc.from, tc.to, 1))
				writes, err := w.run(t)
				if tc.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tc.want)
				require.Contains(t, clierr.Hint(err), "revert")
				require.Empty(t, writes)
			})
		})
	}
}

// The steps of the hint: without a selector, kcpctl move can move the workspace.
func TestSelectorOfAnotherShard(t *testing.T) {
	for annotation, root := range map[string]string{"core.kcp.io/shard": "root", "internal.tenancy.kcp.io/shard": "1pfxsevk"} {
		t.Run(annotation, func(t *testing.T) {
			inWorld(t, teams, func(t *testing.T, w *world) {
				const team = "root:teams/workspaces/team-a"
				on := func(value string) {
					o := w.below.Kcp.In(team)
					notes := o.GetAnnotations()
					delete(notes, "core.kcp.io/shard")
					notes[annotation] = value
					o.SetAnnotations(notes)
					w.below.Kcp.PutIn(team, o)
				}
				selecting := func(selector string) {
					w.use(t, strings.Replace(teams, "      selector: {tier: premium}\n", selector, 1))
				}
				w.mustRun(t)
				on(map[string]string{"root": "alpha", "1pfxsevk": "221wvpxe"}[root])
				selecting("      selector: {name: root}\n")
				writes, err := w.run(t)
				require.ErrorContains(t, err, "workspace root:teams:team-a is on shard alpha, which the selector name=root of the setup does not match")
				require.Contains(t, clierr.Hint(err), "or remove it, run kcpctl up, move the workspace with kcpctl move root:teams:team-a --to SHARD")
				require.Empty(t, writes)

				selecting("")
				w.mustRun(t)
				on(root) // it has moved
				selecting("      selector: {name: root}\n")
				w.mustRun(t)
				require.Empty(t, w.diff(t))
			})
		})
	}
}

func TestExistingWorkspacesAreUsedAndNotOwned(t *testing.T) {
	spec := strings.Replace(teams, "type: universal", "existing: true", 1)
	for name, exists := range map[string]bool{"absent": false, "there": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, spec, func(t *testing.T, w *world) {
				if exists {
					w.below.Kcp.PutIn("root/workspaces/teams", &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": "teams"},
						"status": map[string]any{"phase": "Ready"},
					}})
				}
				writes := w.mustRun(t)
				require.Equal(t, !exists, slices.Contains(writes, "apply root/workspaces/teams"))
				require.Contains(t, writes, "apply root:teams/workspaces/team-b")
				require.Empty(t, w.diff(t))
				w.use(t, "spec: {shards: [{name: alpha, labels: {tier: premium}}]}\n")
				require.Empty(t, w.mustRun(t))
				require.NotContains(t, w.notes(), "no longer has Workspace/teams")
			})
		})
	}
}

func TestOnlyAWorkspace(t *testing.T) {
	inWorld(t, teams, func(t *testing.T, w *world) {
		w.mustRun(t)
		for _, name := range []string{"team-a", "team-b"} {
			w.below.Kcp.PutIn("root:teams/workspaces/"+name, nil)
		}
		w.up.Options.Only = []topology.ID{"workspace/root:teams:team-b"}
		require.Equal(t, []string{"apply root:teams/workspaces/team-b"}, w.mustRun(t))
		rec, err := w.below.Record(t.Context())
		require.NoError(t, err)
		require.Len(t, rec.Placed, len(contents), "the others stay known")
	})
}

func filter(lines []string, prefix string) []string {
	return slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, prefix) })
}

// TestTypeOfTheController continues a run that has failed before the controller of workloads has created the type of
// workspaces.
func TestTypeOfTheController(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		w.mustRun(t)
		w.below.Kcp.PutIn("root/workspaces/compute", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": "compute"},
			"status": map[string]any{"phase": "Ready"},
		}})
		w.below.Kcp.Always("apply workspaces", fakekcp.Refuse(http.StatusForbidden, "Forbidden", "refused"))
		w.below.Kcp.Always("GET /clusters/root:compute/apis/apiextensions.k8s.io/v1", fakekcp.Refuse(http.StatusNotFound, "NotFound", "not served yet"))
		compare := func(workspaceType string) error {
			w.use(t, "spec:\n  workloads: {}\n  workspaces: [{name: team, type: "+workspaceType+"}]\n")
			_, _, err := deploy.Compare(t.Context(), w.up.Topology, w.up.Runtime, time.Now())
			return err
		}
		require.NoError(t, compare("root:compute:workload"))
		require.ErrorContains(t, compare("root:compute:other"), "kcp does not accept Workspace/team in root: refused")
		w.below.Kcp.PutIn("root:compute/workspacetypes/workload", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": "workload"},
		}})
		require.ErrorContains(t, compare("root:compute:workload"), "kcp does not accept Workspace/team in root: refused", "another reason")
	})
}
