//go:build e2e && long

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestClusterAgent runs a kcp and its agent on a cluster, from one file.
func TestClusterAgent(t *testing.T) {
	a, n := newAgentsInside(t, ephemeralShards)
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"one up", func(t *testing.T) { a.up(t); n.lead(t, a.kcp) }},
		{"a Widget of a workspace on another shard", func(t *testing.T) {
			a.isOn(t, "team", "beta")
			a.serves(t, consumer, "first")
		}},
		{"a second up writes nothing", a.settled},
		{"the credential of the agent", a.confined},
		{"an agent in use is not removed", func(t *testing.T) {
			a.kcpctl(t, "down", "--yes", "--purge").refused(t, 1, "agent/widgets", "1 "+a.export()+" in "+consumer, "--orphan")
		}},
		{"deleted objects leave", func(t *testing.T) { a.release(t, consumer, "first") }},
		{"down leaves nothing", a.leavesNothing},
	} {
		step(t, part.name, part.do)
	}
}

// isOn requires that a workspace is on a shard.
func (a *agents) isOn(t *testing.T, name, shard string) {
	t.Helper()
	var w workspace
	require.NoError(t, json.Unmarshal([]byte(a.kubectl(t, "get", "workspace", name, "--output", "json").ok(t).stdout), &w))
	require.Equal(t, shard, w.Metadata.Annotations["core.kcp.io/shard"])
}

// confined sends requests with the certificate of the agent: it reaches its own APIExport, on every shard that serves
// it, and nothing else.
func (a *agents) confined(t *testing.T) {
	c := &authenticated{setup: a.setup, ca: x509.NewCertPool(), via: a.via}
	proxy := c.connect(t, "--user", "e2e", "--group", "system:kcp:admin") + "/clusters/"
	c.pair = a.credential(t)
	code := func(url string) int {
		t.Helper()
		got, _ := c.send(t, http.MethodGet, url, request{certificate: true})
		return got
	}
	exports := "/apis/apis.kcp.io/v1alpha2/apiexports"
	widgets := "/apis/" + a.widgets.GroupVersion().String() + "/widgets"
	require.Equal(t, http.StatusOK, code(proxy+provider+exports+"/"+a.export()))
	own := a.endpoints(t, provider, a.export())
	require.NotEmpty(t, own)
	for _, url := range own {
		eventually(t.Context(), t, func() error {
			if got := code(url + "/clusters/*" + widgets); got != http.StatusOK {
				return fmt.Errorf("%s: HTTP %d", url, got)
			}
			return nil
		})
	}
	for _, workspace := range []string{"root", provider, consumer, uninvolved} {
		for _, path := range []string{"/api/v1/configmaps", "/api/v1/secrets", exports} {
			require.Equal(t, http.StatusForbidden, code(proxy+workspace+path), "%s in %s", path, workspace)
		}
	}
	require.Equal(t, http.StatusForbidden, code(proxy+consumer+widgets), "users' objects, other than through the APIExport")
	for _, url := range a.allEndpoints(t, "root", "tenancy.kcp.io", len(shardNames())) {
		require.Equal(t, http.StatusForbidden, code(url+"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces"), url)
	}
}

// credential returns the certificate of the agent.
func (a *agents) credential(t *testing.T) tls.Certificate {
	t.Helper()
	var secret corev1.Secret
	r := a.service.kubectl("get", "secret", a.name+"-agent-widgets-client", "--namespace", a.service.namespace, "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(r.run(t.Context(), t).ok(t).stdout), &secret))
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	return pair
}

// endpoints returns the URLs of the virtual workspaces of an APIExport.
func (a *agents) endpoints(t *testing.T, workspace, export string) []string {
	t.Helper()
	all, err := a.tryEndpoints(t, workspace, export)
	require.NoError(t, err)
	return all
}

func (a *agents) tryEndpoints(t *testing.T, workspace, export string) ([]string, error) {
	t.Helper()
	out, err := a.kubectlAs(t, []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace},
		"get", "apiexportendpointslice", export, "--output", "jsonpath={.status.endpoints[*].url}").output()
	return strings.Fields(out), err
}

// allEndpoints waits until there are n of them: kcp writes the URLs of shards into the slice one after the other.
func (a *agents) allEndpoints(t *testing.T, workspace, export string, n int) (all []string) {
	t.Helper()
	eventually(t.Context(), t, func() (err error) {
		if all, err = a.tryEndpoints(t, workspace, export); err == nil && len(all) != n {
			err = fmt.Errorf("%s has the endpoints %v, not %d", export, all, n)
		}
		return err
	})
	return all
}

// settled requires that up has nothing to do. The agent itself writes its lease, and the state of objects.
func (a *agents) settled(t *testing.T) {
	t.Helper()
	before := a.ids(t)
	a.up(t).changed(t, 0)
	require.Empty(t, a.kcpctl(t, "diff").ok(t).stdout)
	require.Equal(t, before, a.ids(t))
}

// leavesNothing removes the setup. It leaves neither the lease and the state of the agent, nor objects of it without a
// namespace, nor objects that wait for it.
func (a *agents) leavesNothing(t *testing.T) {
	leavesNothing(t, a.setup)
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "publishedresources.syncagent.kcp.io"} {
		for _, o := range a.service.list(t.Context(), t, kind) {
			require.NotContains(t, o.GetName(), a.name, kind)
		}
	}
	list, err := a.below(t).Resource(a.widgets).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}
