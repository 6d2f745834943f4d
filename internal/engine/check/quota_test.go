package check_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
)

// limited is a cluster with a quota that is below what the namespace uses.
type limited struct{ *fakeruntime.Cluster }

func (limited) Quotas(context.Context) ([]corev1.ResourceQuota, error) {
	q := corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")},
		Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("4")},
	}}
	q.Name = "small"
	return []corev1.ResourceQuota{q}, nil
}

// A quota below its use only forbids more: a setup that needs no more can change, such as to need less.
func TestQuotaBelowItsUse(t *testing.T) {
	for name, tc := range map[string]struct {
		applied bool
		want    string
	}{
		"nothing is new":    {true, ""},
		"everything is new": {false, "ResourceQuota/small: the setup needs 3 more of pods, but only -2 of 2 are left"},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, "  external: {hostname: kcp.example.com}\n")
			desired, err := deploy.LoadDesired(t.Context(), top, nil, deploy.DesiredOptions{Now: time.Now()})
			require.NoError(t, err)
			objects, err := desired.Objects()
			require.NoError(t, err)
			rt := fakeruntime.New(t, top)
			rt.Place.Clusters = []check.Cluster{limited{&fakeruntime.Cluster{Label: top.Home.Name}}}
			if tc.applied {
				objects = nil // as if all were
			}
			r := checkQuota(t, &check.Subject{Topology: top, Runtime: rt, Objects: objects, Now: time.Now})
			require.Equal(t, tc.want, r.Cause)
			require.Equal(t, tc.want == "", r.Status == check.OK)
		})
	}
}

func checkQuota(t *testing.T, s *check.Subject) check.Result {
	t.Helper()
	c, _ := check.Find("KCP013")
	return check.Run(t.Context(), s, []check.Check{c}).Results[0]
}

// full is a cluster with a quota that existing volumes and pods use up.
type full struct {
	*fakeruntime.Cluster
	claims []string
	pods   []map[string]string
}

func (full) Quotas(context.Context) ([]corev1.ResourceQuota, error) {
	all := corev1.ResourceList{
		corev1.ResourceRequestsStorage: resource.MustParse("8Gi"), corev1.ResourcePersistentVolumeClaims: resource.MustParse("1"),
		corev1.ResourcePods: resource.MustParse("3"),
	}
	q := corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: all, Used: all}}
	q.Name = "full"
	return []corev1.ResourceQuota{q}, nil
}

func (f full) Running(context.Context) ([]string, []map[string]string, error) {
	return f.claims, f.pods, nil
}

// down keeps volumes, and the pods of a StatefulSet that was deleted with --cascade=orphan run on: quotas count them
// already.
func TestAQuotaCountsWhatExistsOnce(t *testing.T) {
	top := newTopology(t, "  external: {hostname: kcp.example.com}\n")
	desired, err := deploy.LoadDesired(t.Context(), top, nil, deploy.DesiredOptions{Now: time.Now()})
	require.NoError(t, err)
	objects, err := desired.Objects()
	require.NoError(t, err)
	at := full{Cluster: &fakeruntime.Cluster{Label: top.Home.Name}, claims: []string{"data-demo-etcd-root-0"}}
	for _, o := range objects {
		if match, ok, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels"); ok {
			at.pods = append(at.pods, match)
		}
	}
	require.Len(t, at.pods, 3)
	rt := fakeruntime.New(t, top)
	subject := &check.Subject{Topology: top, Runtime: rt, Objects: objects, Now: time.Now}
	rt.Place.Clusters = []check.Cluster{at}
	require.Empty(t, checkQuota(t, subject).Cause)

	at.claims = []string{"data-demo-etcd-root-1"}
	rt.Place.Clusters = []check.Cluster{at}
	require.Contains(t, checkQuota(t, subject).Cause, "the setup needs 8Gi more of requests.storage, but only 0 of 8Gi are left")
	at.claims, at.pods = []string{"data-demo-etcd-root-0"}, at.pods[1:]
	rt.Place.Clusters = []check.Cluster{at}
	require.Equal(t, "ResourceQuota/full: the setup needs 1 more of pods, but only 0 of 3 are left", checkQuota(t, subject).Cause)
}
