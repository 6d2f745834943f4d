package kube

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// What a watch shows from before a run has scaled a Deployment does not count.
func TestTheStateAfterScaleIsNotFromBefore(t *testing.T) {
	const path = "apis/apps/v1/deployments"
	s := fakeapi.New(t)
	top := topologytest.Build(t, "")
	r, err := New(top, Options{Version: "test", Now: time.Now, API: func(topology.Cluster) (*API, error) {
		d, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
		return &API{Context: "c", Dynamic: d, HTTP: s.Client()}, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	labels, err := json.Marshal(top.Root().Labels())
	require.NoError(t, err)
	s.Apply(t, "", path, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: kcp, labels: %s}, spec: {replicas: 3}}",
		top.Root().Object(), labels))
	_, err = r.State(t.Context(), top.Root())
	require.NoError(t, err)
	before := s.Get("", path, "kcp", top.Root().Object()).GetGeneration()
	s.Apply(t, "", path, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: kcp}, status: {observedGeneration: %d, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}",
		top.Root().Object(), before))
	require.Eventually(t, func() bool {
		st, err := r.State(t.Context(), top.Root())
		return err == nil && st.Reason != ready.RolloutNotStarted
	}, time.Minute, 10*time.Millisecond)

	see := s.Blind(path)
	defer see()
	require.NoError(t, r.Scale(t.Context(), top.Root(), 1))
	st, err := r.State(t.Context(), top.Root())
	require.NoError(t, err)
	require.Equal(t, ready.RolloutNotStarted, st.Reason)
}
