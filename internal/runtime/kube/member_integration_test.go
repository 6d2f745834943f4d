package kube

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// What an interrupted replacement leaves is one of the setup's objects: up removes it, after everything is ready.
func TestUpRemovesWhatMakesMembersJoin(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r, etcd := f.runtime(f.topology), f.topology.OfKind(topology.Etcd)[0]
	f.up(r, run.PlanOptions{})
	name := etcd.Object(topology.JoinConfig)
	env, err := r.MemberStart(t.Context(), etcd)
	require.NoError(t, err)
	require.Nil(t, env)

	for _, want := range []map[string]string{{"ETCD_INITIAL_CLUSTER": "a=b"}, {"ETCD_INITIAL_CLUSTER": "c=d"}} {
		require.NoError(t, r.SetMemberStart(t.Context(), etcd, want))
		env, err = r.MemberStart(t.Context(), etcd)
		require.NoError(t, err)
		require.Equal(t, want, env)
	}
	next := f.runtime(f.topology)
	p, err := next.Plan(t.Context(), f.objects(next), run.PlanOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"delete ConfigMap/" + name}, changes(p))
	require.Len(t, only(p.Items, "ConfigMap", plan.Delete), 1)
	require.Equal(t, etcd.ID(), only(p.Items, "ConfigMap", plan.Delete)[0].Component)
	f.up(next, run.PlanOptions{})
	require.Nil(t, f.live(next, kind.ConfigMap, name))

	require.NoError(t, r.SetMemberStart(t.Context(), etcd, map[string]string{"a": "b"}))
	require.NoError(t, r.SetMemberStart(t.Context(), etcd, nil))
	require.NoError(t, r.SetMemberStart(t.Context(), etcd, nil), "it is gone already")
	require.Nil(t, f.live(next, kind.ConfigMap, name))
}

// A member is emptied of its own volume and no other, and not before its pod is gone.
func TestEmptyMember(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r, etcd := f.runtime(f.topology), f.topology.OfKind(topology.Etcd)[0]
	f.up(r, run.PlanOptions{})
	var uids []string
	for _, pod := range []string{etcd.Member(0), etcd.Member(1), "x-" + etcd.Member(1)} {
		claim := f.claim(r, "data-"+pod, etcd)
		uids = append(uids, string(claim.GetUID()))
		f.pod(r, pod, etcd)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.EmptyMember(ctx, etcd, etcd.Member(1)))
	require.NotNil(t, f.live(r, kind.PersistentVolumeClaim, "data-"+etcd.Member(0)))
	require.Nil(t, f.live(r, kind.PersistentVolumeClaim, "data-"+etcd.Member(1)))
	require.NotNil(t, f.live(r, kind.PersistentVolumeClaim, "data-x-"+etcd.Member(1)))
	l, err := r.clusters.home.Resource(kind.Pods).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, l.Items, 2)
	require.NoError(t, r.EmptyMember(ctx, etcd, etcd.Member(1)), "it is empty already")
	require.NotNil(t, f.live(r, kind.PersistentVolumeClaim, "data-"+etcd.Member(0)))
	require.Equal(t, uids[0], string(f.live(r, kind.PersistentVolumeClaim, "data-"+etcd.Member(0)).GetUID()))
}

func (f *fixture) claim(r *Runtime, name string, c *topology.Component) *unstructured.Unstructured {
	f.t.Helper()
	claims := kind.PersistentVolumeClaim
	u := f.ofComponent(r, claims, name, c, map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	})
	u.SetFinalizers(nil) // the controller that lets claims go does not run here
	u, err := r.clusters.home.Resource(claims.GVR()).Update(f.t.Context(), u, metav1.UpdateOptions{})
	require.NoError(f.t, err)
	return u
}

func (f *fixture) pod(r *Runtime, name string, c *topology.Component) {
	f.t.Helper()
	f.ofComponent(r, kind.Pod, name, c, map[string]any{"containers": []any{map[string]any{"name": "etcd", "image": "etcd"}}})
}

func (f *fixture) ofComponent(r *Runtime, k kind.Kind, name string, c *topology.Component, spec map[string]any) *unstructured.Unstructured {
	f.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(k.GroupVersionKind)
	u.SetName(name)
	u.SetLabels(c.Selector())
	out, err := r.clusters.home.Resource(k.GVR()).Create(f.t.Context(), u, metav1.CreateOptions{})
	require.NoError(f.t, err)
	return out
}
