package roots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// A cluster that does not sync an API says nothing about what runs there, and what it has said is old for a while after
// it syncs the API again.
func TestWhatAClusterSaysIsOldWithoutItsAPI(t *testing.T) {
	gr := schema.GroupResource{Group: "apps", Resource: "deployments"}
	c, s, now := &api.Cluster{}, serving(nil), time.Now()
	c.Name, c.UID = "c1", "1"
	is := func(state api.APIState) {
		c.Status.APIs = []api.APIStatus{{Group: gr.Group, Resource: gr.Resource, Version: "v1", State: state}}
		s = s.next([]*api.Cluster{c}, now)
	}
	is(api.APIPublished)
	require.True(t, s.current(c, gr, now), "it was so before the controller started")
	is(api.APIIncompatible)
	require.False(t, s.current(c, gr, now))
	now = now.Add(time.Hour)
	is(api.APIPublished)
	is(api.APIPublished)
	require.False(t, s.current(c, gr, now))
	require.NotEmpty(t, s.recent(c, now))
	now = now.Add(settleFor)
	require.True(t, s.current(c, gr, now))
	require.Empty(t, s.recent(c, now), "roots are looked at again")
}

// Replicas of a cluster that does not sync the API may be available by now.
func TestReplicasAreOnlyStuckWhereTheirStatusIsCurrent(t *testing.T) {
	now := time.Now()
	sub := &subject{now: now, previous: map[string]schedule.Share{"c1": {Replicas: 1}, "c2": {Replicas: 1}}}
	since := stuckSince(map[string]time.Time{"c1": now.Add(-time.Hour)}, sub,
		[]schedule.Cluster{{Name: "c1", Stale: true}, {Name: "c2"}})
	require.Equal(t, map[string]time.Time{"c2": now}, since)
}
