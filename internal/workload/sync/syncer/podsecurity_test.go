package syncer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

func TestNamespacesGetTheLevelOfTheCluster(t *testing.T) {
	s := newSides(t)
	s.space("1a", "configmaps")
	k := s.listed()
	k.cluster.Store(nil)
	level := func() string {
		return s.physical.Get("", spaces, "", namespaceOf("1a")).GetLabels()[api.LabelPodSecurity]
	}
	k.namespacer.secure(t.Context())
	require.Empty(t, level(), "the Cluster is not known yet")
	for _, want := range []v1alpha1.PodSecurity{v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted} {
		c := s.cluster()
		c.Spec.PodSecurity = want
		k.cluster.Store(c)
		k.namespacer.secure(t.Context())
		require.Equal(t, string(want), level())
		s.eventually(func() bool { return k.down.List(namespaces)[0].GetLabels()[api.LabelPodSecurity] == string(want) }, "the watch sees it")
	}
	s.physical.Writes()
	k.namespacer.secure(t.Context())
	require.Empty(t, s.physical.Writes(), "only changes are written")
}
