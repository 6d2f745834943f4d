package deploy_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const shared = `spec:
  shards: [{name: alpha, etcd: {external: {endpoints: ["https://infra-etcd-root.kcp.svc:2379"], tlsSecret: etcd-client, prefix: /registry}}}]
`

// etcdNetwork is a network with one etcd.
type etcdNetwork struct {
	fakeruntime.Network
	etcd      *fakeetcd.Etcd
	component *topology.Component
	down      bool
}

func (n *etcdNetwork) DialTLS(ctx context.Context, address string, c *tls.Config) (*tls.Conn, error) {
	if n.down || address != "infra-etcd-root.kcp.svc:2379" {
		return nil, errors.New("connection refused")
	}
	conn, err := n.etcd.DialMember(ctx, n.component, n.component.Member(0))
	if err != nil {
		return nil, err
	}
	out := tls.Client(conn, c)
	return out, out.HandshakeContext(ctx)
}

// infra is an etcd outside of all setups, and the Secret with credentials for it.
func infra(t *testing.T) (*etcdNetwork, plan.Item) {
	t.Helper()
	top := topologytest.Build(t, "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: infra}\n")
	issued := pkitest.Issue(t, top, time.Now())
	c := top.OfKind(topology.Etcd)[0]
	pair, err := pki.Mint(issued, pki.MintSpec{
		CN: pki.CNSelf, CA: topology.EtcdCA, Hosts: []string{c.ClientHost()}, Algorithm: "ECDSA-P256", Validity: time.Hour,
	}, time.Now())
	require.NoError(t, err)
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{}}}
	secret.SetName("etcd-client")
	for key, value := range map[string][]byte{"ca.crt": issued.CAs[topology.EtcdCA].Trusted(), "tls.crt": pair.Cert, "tls.key": pair.Key} {
		require.NoError(t, unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString(value), "data", key))
	}
	at := plan.Ref{Cluster: "default", Namespace: "kcp", Name: "etcd-client", GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
	return &etcdNetwork{etcd: fakeetcd.New(t, c, issued), component: c}, plan.Item{Ref: at, Live: secret}
}

// A prefix of an external etcd belongs to the first installation that writes there. Another one of the same file is
// refused.
func TestAPrefixHasAnOwner(t *testing.T) {
	inWorld(t, runtest.Minimal+shared, func(t *testing.T, w *world) {
		network, secret := infra(t)
		w.Up.Network = network
		w.Runtime.Make(secret)
		w.MustRun(t)
		require.Len(t, network.etcd.Keys(), 1)
		require.True(t, w.MustRun(t).Plan.Empty())

		other := newWorld(t, w.Topology, fakeruntime.New(t, w.Topology))
		other.Up.Network = network
		other.Runtime.Make(secret)
		_, err := other.Run(t)
		require.ErrorContains(t, err, "shard/alpha uses /registry in an external etcd, which belongs to installation demo-")
		require.Contains(t, clierr.Hint(err), "--allow data-change=shard/alpha")
		require.Empty(t, other.Runtime.Calls())

		before := network.etcd.Keys()
		other.Up.Options.AllowDataChange = []topology.ID{"shard/alpha"}
		other.MustRun(t)
		require.NotEqual(t, before, network.etcd.Keys())
		_, err = w.Run(t)
		require.ErrorContains(t, err, "which belongs to installation", "the first one has lost it")
	})
}

// Where the etcd cannot be asked, an installation that is new to a prefix must be told that it is its own.
func TestAPrefixWhoseOwnerIsNotKnown(t *testing.T) {
	inWorld(t, runtest.Minimal+shared, func(t *testing.T, w *world) {
		network, secret := infra(t)
		network.down = true
		w.Up.Network = network
		w.Runtime.Make(secret)
		_, err := w.Run(t)
		require.ErrorContains(t, err, "shard/alpha is not in the record of the installation, and uses /registry in an external etcd that kcpctl cannot ask")
		require.Contains(t, clierr.Hint(err), "--allow data-change=shard/alpha")
		require.Empty(t, w.Runtime.Calls())
		w.Up.Options.AllowDataChange = []topology.ID{"shard/alpha"}
		w.MustRun(t)
		w.Up.Options.AllowDataChange = nil
		w.MustRun(t)
		network.down = false
		w.Up.Setup = []byte("changed")
		w.MustRun(t)
	})
}

// The default prefix contains the ID of the installation.
func TestADefaultPrefixIsOwn(t *testing.T) {
	inWorld(t, runtest.Minimal+external, func(t *testing.T, w *world) { w.MustRun(t) })
}
