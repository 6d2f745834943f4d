package roots_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/roots"
)

// A preview says what a request to rebalance would do, and does nothing.
func TestPreview(t *testing.T) {
	s := start(t)
	c1, c2 := cluster("c1", true, 0), cluster("c2", true, 0)
	s.clusters(c1, c2)
	s.deploy(web)
	s.eventually(func() bool { return s.leaves() == "c1=2 c2=2" && strings.HasPrefix(s.scheduled(), "True") }, "divided, and no write is under way")
	s.deploy(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: typo, namespace: shop, annotations: {workloads.kcp.dev/spread: Devide}}
spec: {replicas: 4}`)
	s.restart() // it knows no clusters yet, so that nothing else writes
	c3 := cluster("c3", true, 0)
	state := roots.State{Clusters: []*api.Cluster{c1, c2, c3}, Published: &roots.Published{
		Scheduled: []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}},
	}}
	before := s.Get("1a", deployments, "shop", "web")
	options := roots.Options{KCP: &rest.Config{Host: s.URL}, Workspace: "compute", Now: time.Now}
	endpoints := []string{s.URL + "/services/apiexport/xyz/kubernetes"}
	moves, err := roots.Preview(t.Context(), options, state, endpoints, time.Minute)
	require.NoError(t, err)
	require.Len(t, moves, 1)
	m := moves[0]
	require.Equal(t, []string{"1a", "shop", "web"}, []string{m.Cluster, m.Namespace, m.Name})
	require.Equal(t, map[string]int64{"c1": 2, "c2": 2}, m.From)
	require.Len(t, m.To, 3)
	require.EqualValues(t, 4, m.To["c1"]+m.To["c2"]+m.To["c3"])
	require.Equal(t, before, s.Get("1a", deployments, "shop", "web"))
	require.Equal(t, "c1=2 c2=2", s.leaves())

	state.Clusters = state.Clusters[:2]
	moves, err = roots.Preview(t.Context(), options, state, endpoints, time.Minute)
	require.NoError(t, err)
	require.Empty(t, moves, "it is balanced")

	// The share of a lost cluster stays, so it is part of both.
	state.Clusters = []*api.Cluster{c1, cluster("c2", false, time.Hour)}
	moves, err = roots.Preview(t.Context(), options, state, endpoints, time.Minute)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"c1": 4, "c2": 2}, moves[0].To)
}

// What cannot be read is an error: a preview of a part would mislead.
func TestPreviewOfWhatCannotBeRead(t *testing.T) {
	s := start(t)
	state := roots.State{Published: &roots.Published{Scheduled: []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}}}}
	s.Refuse(func(*http.Request) (int, string) { return http.StatusForbidden, "not you" })
	options := roots.Options{KCP: &rest.Config{Host: s.URL}, Workspace: "compute", Now: time.Now}
	_, err := roots.Preview(t.Context(), options, state, []string{s.URL}, 50*time.Millisecond)
	require.ErrorContains(t, err, "not all objects of the workspaces could be read")
}
