package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	r := runtimeOn(t, s, top)
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

// runtimeOn returns a runtime whose only cluster is a fake.
func runtimeOn(t *testing.T, s *fakeapi.Server, top *topology.Topology) *Runtime {
	t.Helper()
	r, err := New(top, Options{Version: "test", Now: time.Now, API: func(topology.Cluster) (*API, error) {
		d, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
		return &API{Context: "c", Dynamic: d, HTTP: s.Client()}, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// All pods of the previous revision go at once, but only after the controller of the StatefulSet knows the next one.
func TestOutdatedPodsAreReplacedTogether(t *testing.T) {
	const sets, pods = "apis/apps/v1/statefulsets", "api/v1/pods"
	s := fakeapi.New(t)
	top := topologytest.Build(t, "spec: {etcd: {managed: {replicas: 3}}}\n")
	r, etcd := runtimeOn(t, s, top), top.Component("etcd/root")
	name := etcd.Object()
	for i, revision := range []string{"r1", "r1", "r2"} {
		all := map[string]string{labelRevision: revision}
		maps.Copy(all, etcd.Labels())
		labels, err := json.Marshal(all)
		require.NoError(t, err)
		s.Apply(t, "", pods, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s-%d, namespace: kcp, labels: %s}}",
			name, i, labels))
	}
	set := func(spec string) {
		s.Apply(t, "", sets, fmt.Sprintf(
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: %s, namespace: kcp}, %s}", name, spec))
	}
	set("spec: {replicas: 3}")
	generation := s.Get("", sets, "kcp", name).GetGeneration()
	set(fmt.Sprintf("status: {observedGeneration: %d, updateRevision: r1}", generation-1))
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, r.ReplaceOutdated(short, etcd), "the controller of StatefulSet/"+name)
	require.Len(t, s.Names("", pods), 3)

	set(fmt.Sprintf("status: {observedGeneration: %d, updateRevision: r2}", generation))
	require.NoError(t, r.ReplaceOutdated(t.Context(), etcd))
	require.Equal(t, []string{"kcp/" + name + "-2"}, s.Names("", pods))
}

// A component with a pod that is not ready keeps the one that serves until another one does.
func TestReplaceKeepsTheOnlyReadyPod(t *testing.T) {
	const pods = "api/v1/pods"
	s := fakeapi.New(t)
	top := topologytest.Build(t, "spec: {frontProxies: [{name: main, replicas: 2}]}\n")
	r, proxy := runtimeOn(t, s, top), top.Component("front-proxy/main")
	labels, err := json.Marshal(proxy.Labels())
	require.NoError(t, err)
	pod := func(name, isReady string) {
		s.Apply(t, "", pods, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: kcp, labels: %s},
			status: {phase: Running, conditions: [{type: Ready, status: "%s"}]}}`, name, labels, isReady))
	}
	become := func(names ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return slices.Equal(names, s.Names("", pods)) }, time.Minute, 10*time.Millisecond)
	}
	pod("a", "True")
	pod("b", "False")
	done := make(chan error, 1)
	go func() { done <- r.Replace(t.Context(), proxy) }()
	become("kcp/a")
	pod("c", "False")
	time.Sleep(500 * time.Millisecond)
	become("kcp/a", "kcp/c")
	pod("c", "True")
	become("kcp/c")
	pod("d", "True")
	require.NoError(t, <-done)
	become("kcp/c", "kcp/d")
}
