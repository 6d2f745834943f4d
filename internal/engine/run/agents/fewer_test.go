package agents_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// filtered is the setup with a filter of its Widgets.
func filtered(t *testing.T, filter string) string {
	return replaced(t, "kind: Widget}", "kind: Widget}, filter: "+filter)
}

// namespaces are the namespaces of the root shard.
func (w *world) namespaces(labels map[string]any) {
	w.Runtime.Kcp.Always("GET /clusters/*/api/v1/namespaces", list(map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "default", "annotations": map[string]any{"kcp.io/cluster": "c1"}, "labels": labels},
	}))
}

// An agent does not look at objects that its filter excludes: they would keep its finalizer.
func TestAFilterThatExcludesObjects(t *testing.T) {
	const excludes = "it would leave them, because the filter of PublishedResource widgets excludes them; nothing was changed"
	for name, tc := range map[string]struct{ was, now, want string }{
		"by their label":        {"{}", "{resource: {matchLabels: {name: second}}}", excludes},
		"by their namespace":    {"{}", "{namespace: {matchLabels: {team: b}}}", excludes},
		"not this one":          {"{}", "{resource: {matchLabels: {name: first}}, namespace: {matchLabels: {team: a}}}", ""},
		"it was excluded":       {"{resource: {matchLabels: {name: second}}}", "{resource: {matchLabels: {name: third}}}", ""},
		"no filter any more":    {"{resource: {matchLabels: {name: second}}}", "{}", ""},
		"a filter of all":       {"{}", "{resource: {}, namespace: {}}", ""},
		"another way to say it": {"{resource: {matchLabels: {name: first}}}", "{resource: {matchExpressions: [{key: name, operator: In, values: [first]}]}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
				w.namespaces(map[string]any{"team": "a"})
				widgets()
				w.File(t, filtered(t, tc.was))
				w.MustRun(t)
				widgets("first")
				w.Runtime.Forget()
				w.File(t, filtered(t, tc.now))
				_, err := w.Run(t)
				if tc.want == "" {
					require.NoError(t, err)
					require.Empty(t, w.Runtime.Kcp.Requests("PATCH "+firstURL))
					require.True(t, w.MustRun(t).Plan.Empty())
					return
				}
				runtest.RequireError(t, err, clierr.Failed, used+tc.want)
				require.Contains(t, clierr.Hint(err), "or pass --orphan agent/widgets")
				require.Empty(t, w.Runtime.Calls())

				widgets("second") // in the same namespace, which is excluded or not
				if strings.Contains(tc.now, "second") {
					w.MustRun(t)
				}
			})
		})
	}
}

// With --orphan, the excluded objects lose the finalizer, also after an interruption.
func TestObjectsThatAFilterExcludesAreOrphaned(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		widgets("first", "second")
		w.File(t, filtered(t, "{resource: {matchLabels: {name: second}}}"))
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		w.Runtime.Kcp.Always("PATCH "+firstURL, fakekcp.Refuse(http.StatusServiceUnavailable, "", "x"))
		_, err := w.Run(t)
		require.ErrorContains(t, err, "objects in workspaces may still have the finalizer syncagent.kcp.io/cleanup")
		w.Runtime.Kcp.Always("PATCH "+firstURL, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}})
		failed := len(w.Runtime.Kcp.Requests("PATCH " + firstURL))
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests("PATCH "+firstURL), failed+1, "a request for the other one would fail the test")
		require.Contains(t, left(w), "obj-state-c1-widget")
		w.Up.Options.Orphan = nil
		require.True(t, w.MustRun(t).Plan.Empty())
	})
}

// A related resource that the agent no longer copies keeps the finalizer. Its claim is not accepted any more, so that
// the APIExport does not show it.
func TestRelatedResourceIsRemoved(t *testing.T) {
	const secret = "PATCH /clusters/c1/api/v1/namespaces/default/secrets/input"
	removed := replaced(t, ", "+inputs, "")
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.onShard("secrets", "input")
		w.File(t, removed)
		w.Runtime.Forget()
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets: workspaces have 1 of the objects that it synchronizes: 1 secrets in root:team-a; "+
			"it would leave them, because it no longer has them as related resources; nothing was changed")
		require.Empty(t, w.Runtime.Calls())

		w.Runtime.Kcp.Always(secret, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Secret"}})
		w.Up.Options.Orphan = []topology.ID{agentWidgets}
		boom := errors.New("boom")
		w.Runtime.On("Finish", func() error { return boom })
		_, err = w.Run(t)
		require.ErrorIs(t, err, boom)
		require.Len(t, w.Runtime.Kcp.Requests(secret), 1)
		require.Empty(t, w.Runtime.Kcp.Requests("PATCH "+firstURL))
		w.Runtime.On("Finish", func() error { return nil })
		w.MustRun(t)
		w.Up.Options.Orphan = nil
		require.True(t, w.MustRun(t).Plan.Empty())
	})
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.File(t, removed) // no object has the finalizer
		w.MustRun(t)
	})
	inAgents(t, func(t *testing.T, w *world, _ func(...string)) {
		w.onShard("secrets", "input")
		w.consumers() // the workspace with the Secret has no APIBinding of the agent
		w.File(t, removed)
		w.MustRun(t)
	})
}

// Without a PublishedResource, its related objects lose the finalizer.
func TestRelatedObjectsOfOnePublishedResource(t *testing.T) {
	const secret = "PATCH /clusters/c1/api/v1/namespaces/default/secrets/input"
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		at := strings.Index(withAgents, "    - {name: widgets")
		_, rest, _ := strings.Cut(withAgents[at:], "\n")
		w.File(t, withAgents[:at]+rest)
		widgets()
		w.onShard("secrets", "input")
		w.Runtime.Kcp.Always(secret, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Secret"}})
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests(secret), 1)
	})
}

// bound adds the APIBinding of another consumer, which the setup file no longer has.
func (w *world) bound(t *testing.T) {
	w.File(t, strings.Replace(withAgents, "    workspace: root:widgets\n", "    workspace: root:widgets\n    bind: [root:widgets, root:team-a]\n", 1))
	w.Runtime.Kcp.PutIn("root/workspaces/team-a", &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Ready"}}})
	w.MustRun(t)
	w.File(t, withAgents)
	w.Runtime.Forget()
}

// kcp deletes the objects with the APIBinding of a consumer, and they wait for the agent.
func TestAConsumerOfAnAgentThatIsPaused(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		w.bound(t)
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets is paused: 1 widgets.example.com in root:team-a would keep its finalizer, "+
			"and the APIBinding would wait for them; nothing was changed")
		require.Equal(t, "remove paused of the agent widgets from the setup file, and run the command again: it starts the agent first", clierr.Hint(err))
		require.Empty(t, w.Runtime.Calls())

		w.Runtime.Kcp.PutIn("root:widgets/apiexportendpointslices/widgets", nil)
		_, err = w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "agent/widgets is paused, and whether workspaces have objects that wait for it is not known: "+
			"APIExportEndpointSlice widgets in root:widgets does not exist; nothing was changed")
		w.exports("root:widgets", "widgets", endpoint, "widgets")

		widgets()
		w.MustRun(t)
		require.Contains(t, w.Of("agent/widgets"), "done 1 APIBinding removed")
	})
}

// The wait for the objects of a consumer has a limit.
func TestAConsumerWhoseObjectsRemain(t *testing.T) {
	inAgents(t, func(t *testing.T, w *world, widgets func(...string)) {
		w.bound(t)
		widgets()
		w.Runtime.On("Delete agent/widgets", func() error {
			time.Sleep(16 * time.Minute)
			return errors.New("timed out")
		})
		began := time.Now()
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.NotReady, "agent/widgets: the objects of its APIs are not gone: timed out")
		require.Less(t, time.Since(began), 20*time.Minute)
		require.Contains(t, clierr.Hint(err), "KCP145")
	})
}
