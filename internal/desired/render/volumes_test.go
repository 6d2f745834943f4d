package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The claims are those that up, or the controller of the StatefulSet, creates.
func TestVolumesOf(t *testing.T) {
	top := topologytest.Build(t, `spec:
  shards:
  - name: alpha
    etcd: {managed: {replicas: 3, storage: 2Gi, storageClassName: fast}}
  - name: beta
    etcd: {embedded: {storage: 3Gi}}
  - name: gamma
    etcd: {embedded: {ephemeral: true}}
  - name: delta
    etcd: {managed: {ephemeral: true}}
`)
	for id, tc := range map[topology.ID]struct {
		names       []string
		size, class string
		directory   string
		release     string
	}{
		"etcd/alpha":  {[]string{"data-demo-etcd-alpha-0", "data-demo-etcd-alpha-1", "data-demo-etcd-alpha-2"}, "2Gi", "fast", "/var/lib/kcp/etcd", "v3.6.16"},
		"shard/beta":  {[]string{"demo-shard-beta-data"}, "3Gi", "", "/var/lib/kcp/etcd", top.Component("shard/beta").Version},
		"shard/gamma": {},
		"etcd/delta":  {},
	} {
		t.Run(string(id), func(t *testing.T) {
			v, err := render.VolumesOf(top, top.Component(id))
			require.NoError(t, err)
			var names []string
			for _, claim := range v.Claims {
				names = append(names, claim.GetName())
				require.Equal(t, "PersistentVolumeClaim", claim.GetKind())
				require.Equal(t, "kcp", claim.GetNamespace())
				for label, value := range top.Component(id).Selector() {
					require.Equal(t, value, claim.GetLabels()[label])
				}
				spec := claim.Object["spec"].(map[string]any)
				require.Equal(t, map[string]any{"requests": map[string]any{"storage": tc.size}}, spec["resources"])
				if tc.class != "" {
					require.Equal(t, tc.class, spec["storageClassName"])
				}
				require.True(t, v.Data.Uses(claim.GetName()))
			}
			require.Equal(t, tc.names, names)
			if tc.names != nil {
				require.Equal(t, tc.directory, v.Directory)
				require.Equal(t, tc.release, v.Data.Release)
			}
		})
	}
}

// The pod runs where the member runs, as its user, and only with its volume.
func TestRestorer(t *testing.T) {
	top := topologytest.Build(t, `spec:
  image: {pullSecrets: [registry]}
  shards:
  - name: alpha
    etcd:
      managed:
        replicas: 3
        podTemplate:
          spec:
            hostNetwork: true
            nodeSelector: {disk: fast}
            tolerations: [{key: etcd}]
            securityContext: {runAsUser: 1234, fsGroup: 1234}
            containers:
            - name: etcd
              env: [{name: HTTPS_PROXY, value: "http://proxy"}]
            - {name: sidecar, image: sidecar}
`)
	v, err := render.VolumesOf(top, top.Component("etcd/alpha"))
	require.NoError(t, err)
	r := render.Restorer{
		Volumes: v, Claim: v.Claims[1].GetName(), Command: []string{"receive", "--dir=" + v.Directory},
		Image: v1alpha1.Image{Repository: "mirror/kcpctl", Tag: "v1", PullSecrets: []string{"registry", "mirror"}},
	}
	pod, err := r.Pod()
	require.NoError(t, err)
	require.Equal(t, "data-demo-etcd-alpha-1-restore", pod.Name)
	require.Equal(t, "kcp", pod.Namespace)
	require.Equal(t, topology.PurposeRestore, pod.Labels[topology.LabelPurpose])
	for label, value := range top.Component("etcd/alpha").Selector() {
		require.Equal(t, value, pod.Labels[label])
	}
	require.NotContains(t, pod.Annotations, topology.AnnotationChecksum)
	s := pod.Spec
	require.Equal(t, map[string]string{"disk": "fast"}, s.NodeSelector)
	require.Equal(t, []corev1.Toleration{{Key: "etcd"}}, s.Tolerations)
	require.Equal(t, int64(1234), *s.SecurityContext.RunAsUser)
	require.Equal(t, int64(1234), *s.SecurityContext.FSGroup)
	require.True(t, *s.SecurityContext.RunAsNonRoot)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}, {Name: "mirror"}}, s.ImagePullSecrets)
	require.NotNil(t, s.Affinity.PodAntiAffinity, "the volumes of members are on different nodes")
	require.False(t, s.HostNetwork)
	require.Equal(t, corev1.RestartPolicyNever, s.RestartPolicy)
	require.Len(t, s.ReadinessGates, 1)
	require.Equal(t, []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-demo-etcd-alpha-1"}}}}, s.Volumes)
	require.Len(t, s.Containers, 1)
	c := s.Containers[0]
	require.Equal(t, "mirror/kcpctl:v1", c.Image)
	require.Equal(t, []string{"/kcpctl", "receive", "--dir=/var/lib/kcp/etcd"}, c.Command)
	require.Empty(t, c.Args)
	require.Equal(t, []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy"}}, c.Env)
	require.Equal(t, []corev1.VolumeMount{{Name: "data", MountPath: "/var/lib/kcp"}}, c.VolumeMounts)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.Nil(t, c.ReadinessProbe)
}
