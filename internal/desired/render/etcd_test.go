package render_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// etcdSet is the StatefulSet of a managed etcd.
func etcdSet(t *testing.T, objects []render.Object, c *topology.Component) appsv1.StatefulSet {
	t.Helper()
	var out appsv1.StatefulSet
	i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetKind() == "StatefulSet" && o.Component == c.ID() })
	require.GreaterOrEqual(t, i, 0)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &out))
	return out
}

func flagOf(args []string, name string) string {
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// All etcds of a setup trust one authority. Each tells its own clients and peers from all others by a host (etcd:
// client/pkg/transport/listener.go, AllowedHostnames), so that no certificate of a shard or an etcd opens another one.
func TestEtcdsAcceptOnlyTheirOwn(t *testing.T) {
	top, state, objects := rendered(t, example(t, "ha"))
	etcds := top.OfKind(topology.Etcd)
	require.Greater(t, len(etcds), 2)
	for _, etcd := range etcds {
		args := etcdSet(t, objects, etcd).Spec.Template.Spec.Containers[0].Args
		client, peer := flagOf(args, "client-cert-allowed-hostname"), flagOf(args, "peer-cert-allowed-hostname")
		require.NotEmpty(t, client)
		require.NotEmpty(t, peer)
		var clients, peers []string
		for _, row := range pki.Table(top) {
			if row.CA != topology.EtcdCA || !slices.Contains(row.Usages, pki.ClientAuth) {
				continue
			}
			block, _ := pem.Decode(state.Leaves[row.Key()].Cert)
			cert, err := x509.ParseCertificate(block.Bytes)
			require.NoError(t, err)
			if cert.VerifyHostname(client) == nil {
				clients = append(clients, row.Secret)
			}
			if cert.VerifyHostname(peer) == nil && row.Name != topology.CertServer {
				peers = append(peers, row.Secret)
			}
		}
		var owner *topology.Component
		for _, c := range top.Components {
			if c.Storage != nil && c.Storage.Etcd == etcd.ID() {
				owner = c
			}
		}
		require.ElementsMatch(t, []string{etcd.Object(topology.CertServer), owner.Object(topology.CertEtcdClient)}, clients)
		require.Equal(t, []string{etcd.Object(topology.CertPeer)}, peers)
	}
}

// What a member says without being asked for a certificate, everything in the pod network hears. With monitoring these
// are metrics, at a port of their own.
func TestEtcdsServeNothingWithoutCertificates(t *testing.T) {
	top, _, objects := rendered(t, example(t, "ha"))
	for _, etcd := range top.OfKind(topology.Etcd) {
		c := etcdSet(t, objects, etcd).Spec.Template.Spec.Containers[0]
		for _, a := range c.Args {
			if name, value, _ := strings.Cut(a, "="); strings.HasPrefix(a, "--listen-") && name != "--listen-metrics-urls" {
				require.True(t, strings.HasPrefix(value, "https://"), a)
			}
		}
		require.Equal(t, "true", flagOf(c.Args, "client-cert-auth"))
		require.Equal(t, "true", flagOf(c.Args, "peer-client-cert-auth"))
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			require.NotNil(t, p.Exec)
		}
		require.Contains(t, c.LivenessProbe.Exec.Command, "--consistency=s", "a member that lost the others must not restart")
		require.Contains(t, c.ReadinessProbe.Exec.Command, "--consistency=l")
	}
}

// A member that has no data takes the later of two ConfigMaps; the other one is always there.
func TestEtcdsCanBeToldToJoin(t *testing.T) {
	top, _, objects := rendered(t, example(t, "ha"))
	for _, etcd := range top.OfKind(topology.Etcd) {
		c := etcdSet(t, objects, etcd).Spec.Template.Spec.Containers[0]
		require.Len(t, c.EnvFrom, 2)
		first, second := c.EnvFrom[0].ConfigMapRef, c.EnvFrom[1].ConfigMapRef
		i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetKind() == "ConfigMap" && o.GetName() == first.Name })
		require.GreaterOrEqual(t, i, 0)
		data := objects[i].Object["data"].(map[string]any)
		require.Equal(t, "new", data[render.EnvInitialClusterState])
		require.Len(t, strings.Split(data[render.EnvInitialCluster].(string), ","), int(etcd.Replicas))
		require.Equal(t, etcd.Object(topology.JoinConfig), second.Name)
		require.True(t, *second.Optional)
		for _, e := range c.Env {
			_, overrides := data[e.Name]
			require.False(t, overrides, "%s would override both", e.Name)
		}
		require.Empty(t, flagOf(c.Args, "initial-cluster"), "a flag would override both")
		require.Empty(t, flagOf(c.Args, "initial-cluster-state"))
	}
}

// A podTemplate replaces envFrom as a whole. A member without data that did not know the others would form its own
// cluster, and be ready.
func TestMembersKnowEachOtherWhateverThePodTemplateSays(t *testing.T) {
	for container, first := range map[string][]string{
		"{name: etcd, envFrom: [{configMapRef: {name: tuning}}]}": {"tuning"},
		"{name: etcd, envFrom: [{configMapRef: {name: demo-etcd-root-join, optional: true}}, {configMapRef: {name: tuning}}]}": {
			"tuning"},
		"{name: etcd, envFrom: null}":                                  nil,
		"{name: sidecar, image: b, envFrom: [{secretRef: {name: s}}]}": nil,
	} {
		_, _, objects := rendered(t, "spec: {etcd: {managed: {replicas: 3, podTemplate: {spec: {containers: ["+container+"]}}}}}")
		top, _, plain := rendered(t, "spec: {etcd: {managed: {replicas: 3}}}")
		etcd := top.OfKind(topology.Etcd)[0]
		own := func(objects []render.Object) []corev1.EnvFromSource {
			set := etcdSet(t, objects, etcd)
			return etcd.Kind.ContainerOf(&set.Spec.Template.Spec).EnvFrom
		}
		var want []corev1.EnvFromSource
		for _, name := range first {
			want = append(want, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
		}
		require.Equal(t, append(want, own(plain)...), own(objects), container)
	}
}
