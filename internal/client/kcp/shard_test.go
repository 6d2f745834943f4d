package kcp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// answers is a server that answers each "METHOD /path" in turn, repeats the last one, and keeps what was sent.
type answers struct {
	t    *testing.T
	by   map[string][]fakekcp.Answer
	sent map[string][]string
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := r.Method + " " + r.URL.Path
	var body any
	_ = json.NewDecoder(r.Body).Decode(&body)
	raw, _ := json.Marshal(body)
	a.sent[op] = append(a.sent[op], string(raw))
	next := a.by[op]
	if len(next) == 0 {
		a.t.Errorf("unexpected %s", op)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if len(next) > 1 {
		a.by[op] = next[1:]
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(next[0].Code)
	_ = json.NewEncoder(w).Encode(next[0].Body)
}

// withAnswers runs a test with a client of such a server, in a bubble.
func withAnswers(t *testing.T, by map[string][]fakekcp.Answer, test func(t *testing.T, c *kcp.Client, a *answers)) {
	t.Helper()
	answering(t, kcp.Options{}, by, test)
}

func answering(t *testing.T, o kcp.Options, by map[string][]fakekcp.Answer, test func(t *testing.T, c *kcp.Client, a *answers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &answers{t, by, map[string][]string{}}
		l := fakekcp.NewListener()
		srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: a}}
		srv.Start()
		defer srv.Close()
		o.URL, o.Dial = "http://demo", l.Dial
		test(t, kcp.New(o), a)
	})
}

func ok(body map[string]any) fakekcp.Answer { return fakekcp.Answer{Code: http.StatusOK, Body: body} }

const shardsPath = "/clusters/root/apis/core.kcp.io/v1alpha1/shards"

func shard() map[string]any {
	return map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "metadata": map[string]any{"name": "alpha"}}
}

func TestCordon(t *testing.T) {
	patch := "PATCH " + shardsPath + "/alpha"
	withAnswers(t, map[string][]fakekcp.Answer{patch: {ok(shard()), ok(shard()), fakekcp.Refuse(http.StatusForbidden, "Forbidden", "no")}},
		func(t *testing.T, c *kcp.Client, a *answers) {
			require.NoError(t, c.Cordon(t.Context(), "alpha", true))
			require.NoError(t, c.Cordon(t.Context(), "alpha", false))
			require.Equal(t, []string{
				`{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":"true"}}}`,
				`{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":null}}}`,
			}, a.sent[patch])
			require.EqualError(t, c.Cordon(t.Context(), "alpha", true), "cordon shard alpha: no")
		})
}

// A shard that owns its Shard object is cordoned through the Admin workspace, and acknowledges it.
func TestCordonOfAnOwner(t *testing.T) {
	const admin = " /services/admin/apis/core.kcp.io/v1alpha1/shards/alpha"
	schedulable := func(status string) fakekcp.Answer {
		s := shard()
		s["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Schedulable", "status": status}}}
		return ok(s)
	}
	answering(t, kcp.Options{OwnShards: true}, map[string][]fakekcp.Answer{
		"PATCH" + admin: {ok(shard())},
		"GET" + admin:   {ok(shard()), schedulable("True"), schedulable("False"), schedulable("False"), schedulable("True"), schedulable("True")},
	}, func(t *testing.T, c *kcp.Client, a *answers) {
		require.NoError(t, c.Cordon(t.Context(), "alpha", true))
		require.Len(t, a.sent["GET"+admin], 3, "no condition, and True, are not a cordon")
		require.NoError(t, c.Cordon(t.Context(), "alpha", false))
		require.Len(t, a.sent["GET"+admin], 5)
		require.Equal(t, []string{
			`{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":"true"}}}`,
			`{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":null}}}`,
		}, a.sent["PATCH"+admin])
		began := time.Now()
		require.EqualError(t, c.Cordon(t.Context(), "alpha", true),
			"cordon shard alpha: the shard has not acknowledged it: its condition Schedulable is not False")
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// The labels of a shard that owns its Shard object come from its flag: nothing is written.
func TestLabelsOfAnOwner(t *testing.T) {
	answering(t, kcp.Options{OwnShards: true}, nil, func(t *testing.T, c *kcp.Client, _ *answers) {
		s := kcp.Shard{Name: "alpha", Labels: map[string]string{"name": "alpha", "region": "us"}}
		require.NoError(t, c.SetLabels(t.Context(), s, map[string]string{"region": "us"}))
		require.NoError(t, c.SetLabels(t.Context(), s, nil))
		require.EqualError(t, c.SetLabels(t.Context(), s, map[string]string{"region": "eu", "zone": "a"}),
			"shard alpha has not registered with the label region=eu yet")
	})
}

func TestSetLabels(t *testing.T) {
	patch := "PATCH " + shardsPath + "/alpha"
	has := kcp.Shard{
		Name: "alpha", Labels: map[string]string{"name": "alpha", "region": "us", "zone": "a", "team": "x"}, OwnLabels: []string{"region", "zone"},
	}
	for name, tc := range map[string]struct {
		want map[string]string
		sent []string
	}{
		"the same":        {map[string]string{"region": "us", "zone": "a"}, nil},
		"one is changed":  {map[string]string{"region": "eu", "zone": "a"}, []string{`{"metadata":{"annotations":{"kcpctl.dev/labels":"region,zone"},"labels":{"region":"eu"}}}`}},
		"one is removed":  {map[string]string{"zone": "a"}, []string{`{"metadata":{"annotations":{"kcpctl.dev/labels":"zone"},"labels":{"region":null}}}`}},
		"none is left":    {nil, []string{`{"metadata":{"annotations":{"kcpctl.dev/labels":null},"labels":{"region":null,"zone":null}}}`}},
		"one of a user's": {map[string]string{"region": "us", "zone": "a", "team": "x"}, []string{`{"metadata":{"annotations":{"kcpctl.dev/labels":"region,team,zone"},"labels":{}}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			withAnswers(t, map[string][]fakekcp.Answer{patch: {ok(shard())}}, func(t *testing.T, c *kcp.Client, a *answers) {
				require.NoError(t, c.SetLabels(t.Context(), has, tc.want))
				require.Equal(t, tc.sent, a.sent[patch])
			})
		})
	}
	withAnswers(t, map[string][]fakekcp.Answer{patch: {fakekcp.Refuse(http.StatusForbidden, "Forbidden", "no")}}, func(t *testing.T, c *kcp.Client, _ *answers) {
		require.EqualError(t, c.SetLabels(t.Context(), has, nil), "set labels of shard alpha: no")
	})
}

func TestDeleteShard(t *testing.T) {
	withAnswers(t, map[string][]fakekcp.Answer{"DELETE " + shardsPath + "/alpha": {
		ok(shard()), fakekcp.Refuse(http.StatusNotFound, "NotFound", "gone"), fakekcp.Refuse(http.StatusForbidden, "Forbidden", "no"),
	}}, func(t *testing.T, c *kcp.Client, _ *answers) {
		require.NoError(t, c.DeleteShard(t.Context(), "alpha"))
		require.NoError(t, c.DeleteShard(t.Context(), "alpha"), "it is gone already")
		require.EqualError(t, c.DeleteShard(t.Context(), "alpha"), "delete shard alpha: no")
	})
}

func logicalCluster(cluster, path string, deleting bool) any {
	notes := map[string]any{"kcp.io/cluster": cluster}
	if path != "" {
		notes["kcp.io/path"] = path
	}
	meta := map[string]any{"name": "cluster", "annotations": notes}
	if deleting {
		meta["deletionTimestamp"] = "2026-11-20T20:00:00Z"
	}
	return map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": meta}
}

func TestLogicalClusters(t *testing.T) {
	withAnswers(t, map[string][]fakekcp.Answer{"GET /clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters": {
		ok(map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalClusterList", "metadata": map[string]any{}, "items": []any{
			logicalCluster("system:shard", "", false), logicalCluster("system:admin", "", false),
			logicalCluster("2b", "root:team:b", true), logicalCluster("2a", "root:team:a", false), logicalCluster("root", "", false),
		}}),
	}}, func(t *testing.T, c *kcp.Client, _ *answers) {
		got, err := c.LogicalClusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []kcp.LogicalCluster{
			{Name: "root", Path: "root"}, {Name: "2a", Path: "root:team:a"}, {Name: "2b", Path: "root:team:b", Deleting: true},
		}, got)
		require.Equal(t, "root:team:b (being deleted)", got[2].String())
	})
}

const (
	bindingsPath   = "/clusters/root/apis/apis.kcp.io/v1alpha2/apibindings"
	migrationsPath = "/clusters/root/apis/migration.kcp.io/v1alpha1/logicalclustermigrations"
	dumpsPath      = "/clusters/system:admin/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
)

func TestCanMigrate(t *testing.T) {
	for name, tc := range map[string]struct {
		answer fakekcp.Answer
		want   bool
	}{
		"gate on":  {fakekcp.Refuse(http.StatusForbidden, "Forbidden", "only shards"), true},
		"gate off": {fakekcp.Refuse(http.StatusNotFound, "NotFound", "no such API"), false},
		"broken":   {fakekcp.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "no such API"), false},
	} {
		t.Run(name, func(t *testing.T) {
			withAnswers(t, map[string][]fakekcp.Answer{"POST " + dumpsPath: {tc.answer}}, func(t *testing.T, c *kcp.Client, _ *answers) {
				got, err := c.CanMigrate(t.Context())
				require.NoError(t, err)
				require.Equal(t, tc.want, got)
			})
		})
	}
}

func withPhase(kind, phase string, conditions ...any) fakekcp.Answer {
	return ok(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "x"},
		"status": map[string]any{"phase": phase, "conditions": conditions}})
}

func TestBindMigration(t *testing.T) {
	const one = bindingsPath + "/kcpctl-migration"
	list := func(items ...any) fakekcp.Answer {
		return ok(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": append([]any{}, items...)})
	}
	migration := map[string]any{"apiVersion": "v1", "kind": "LogicalClusterMigration", "metadata": map[string]any{"name": "mine"}}
	withAnswers(t, map[string][]fakekcp.Answer{
		"POST " + bindingsPath:  {ok(shard()), fakekcp.Refuse(http.StatusConflict, "AlreadyExists", "there")},
		"GET " + one:            {withPhase("APIBinding", "Binding"), withPhase("APIBinding", "Bound")},
		"GET " + migrationsPath: {fakekcp.Refuse(http.StatusNotFound, "NotFound", "not served"), list(), list(), list(migration), list()},
		"DELETE " + one:         {ok(shard())},
	}, func(t *testing.T, c *kcp.Client, a *answers) {
		var reasons []string
		start := time.Now()
		require.NoError(t, c.BindMigration(t.Context(), func(r string) { reasons = append(reasons, r) }))
		require.Equal(t, []string{"not yet bound", "not served"}, reasons)
		require.Positive(t, time.Since(start))
		require.NoError(t, c.BindMigration(t.Context(), nil), "it is bound already")
		require.NoError(t, c.UnbindMigration(t.Context()))
		require.Empty(t, a.sent["DELETE "+one], "it is in use")
		require.NoError(t, c.UnbindMigration(t.Context()))
		require.Len(t, a.sent["DELETE "+one], 1)
	})
}
