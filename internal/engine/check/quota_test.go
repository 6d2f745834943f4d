package check_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
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
			desired, err := run.LoadDesired(t.Context(), top, nil, run.DesiredOptions{Now: time.Now()})
			require.NoError(t, err)
			objects, err := desired.Objects()
			require.NoError(t, err)
			rt := fakeruntime.New(t, top)
			rt.Place.Clusters = []check.Cluster{limited{&fakeruntime.Cluster{Label: top.Home.Name}}}
			if tc.applied {
				objects = nil // as if all were
			}
			c, _ := check.Find("KCP013")
			r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: rt, Objects: objects, Now: time.Now}, []check.Check{c}).Results[0]
			require.Equal(t, tc.want, r.Cause)
			require.Equal(t, tc.want == "", r.Status == check.OK)
		})
	}
}
