package cmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Before import --finish releases or removes anything, it looks for objects that the setup uses and that would go too.
func TestFinishKeepsWhatTheSetupUses(t *testing.T) {
	top := topologytest.Build(t, `spec:
  rootShard:
    podTemplate:
      spec: {volumes: [{name: audit, secret: {secretName: audit}}]}
`)
	objects, err := render.Objects(top, pkitest.Issue(t, top, time.Now()))
	require.NoError(t, err)
	kinds := map[schema.GroupVersionResource]string{}
	for _, r := range operator.Resources {
		kinds[schema.GroupVersionResource{Group: operator.Group, Version: operator.Version, Resource: r.Name}] = r.Kind + "List"
	}
	audit := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "audit", Namespace: "kcp", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: operator.Group + "/" + operator.Version, Kind: "Shard", Name: "alpha", UID: "uid"},
	}}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(clientscheme.Scheme, kinds, audit)
	i, err := adopt.Open(top.Home, cluster.Options{
		Now: time.Now, Notify: func(string, ...any) {},
		API: func(topology.Cluster) (*cluster.API, error) {
			return &cluster.API{Context: "test", Dynamic: client}, nil
		},
	})
	require.NoError(t, err)
	err = predecessor{i, &adopt.Remains{}, top}.Release(t.Context(), objects)
	require.ErrorContains(t, err, "nothing was removed:\nSecret/kcp/audit, used by Deployment/demo-root")
	require.Contains(t, clierr.Hint(err), "copy each of them")
}
