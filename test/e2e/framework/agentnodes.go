package framework

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

// IsOn requires that a workspace is on a shard.
func (a *Agents) IsOn(t *testing.T, name, shard string) {
	t.Helper()
	var w Workspace
	require.NoError(t, json.Unmarshal([]byte(a.Kubectl(t, "get", "workspace", name, "--output", "json").OK(t).Stdout), &w))
	require.Equal(t, shard, w.Metadata.Annotations["core.kcp.io/shard"])
}

// Confined sends requests with the certificate of the agent: it reaches its own APIExport, on every shard that serves
// it, and nothing else.
func (a *Agents) Confined(t *testing.T) {
	c := &Authenticated{Setup: a.Setup, Ca: x509.NewCertPool(), Via: a.via}
	proxy := c.Connect(t, "--user", "e2e", "--group", "system:kcp:admin") + "/clusters/"
	c.pair = a.Credential(t)
	code := func(url string) int {
		t.Helper()
		got, _ := c.Send(t, http.MethodGet, url, Request{Certificate: true})
		return got
	}
	exports := "/apis/apis.kcp.io/v1alpha2/apiexports"
	widgets := "/apis/" + a.widgets.GroupVersion().String() + "/widgets"
	require.Equal(t, http.StatusOK, code(proxy+Provider+exports+"/"+a.Export()))
	own := a.endpoints(t, Provider, a.Export())
	require.NotEmpty(t, own)
	for _, url := range own {
		Eventually(t.Context(), t, func() error {
			if got := code(url + "/clusters/*" + widgets); got != http.StatusOK {
				return fmt.Errorf("%s: HTTP %d", url, got)
			}
			return nil
		})
	}
	for _, workspace := range []string{"root", Provider, Consumer, uninvolved} {
		for _, path := range []string{"/api/v1/configmaps", "/api/v1/secrets", exports} {
			require.Equal(t, http.StatusForbidden, code(proxy+workspace+path), "%s in %s", path, workspace)
		}
	}
	require.Equal(t, http.StatusForbidden, code(proxy+Consumer+widgets), "users' objects, other than through the APIExport")
	for _, url := range a.AllEndpoints(t, "root", "tenancy.kcp.io", len(ShardNames())) {
		require.Equal(t, http.StatusForbidden, code(url+"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces"), url)
	}
}

// Credential returns the certificate of the agent.
func (a *Agents) Credential(t *testing.T) tls.Certificate {
	t.Helper()
	var secret corev1.Secret
	r := a.Service.Kubectl("get", "secret", a.Name+"-agent-widgets-client", "--namespace", a.Service.Namespace, "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(r.Run(t.Context(), t).OK(t).Stdout), &secret))
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	return pair
}

// endpoints returns the URLs of the virtual workspaces of an APIExport.
func (a *Agents) endpoints(t *testing.T, workspace, export string) []string {
	t.Helper()
	all, err := a.tryEndpoints(t, workspace, export)
	require.NoError(t, err)
	return all
}

func (a *Agents) tryEndpoints(t *testing.T, workspace, export string) ([]string, error) {
	t.Helper()
	out, err := a.KubectlAs(t, []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace},
		"get", "apiexportendpointslice", export, "--output", "jsonpath={.status.endpoints[*].url}").Output()
	return strings.Fields(out), err
}

// AllEndpoints waits until there are n of them: kcp writes the URLs of shards into the slice one after the other.
func (a *Agents) AllEndpoints(t *testing.T, workspace, export string, n int) (all []string) {
	t.Helper()
	Eventually(t.Context(), t, func() (err error) {
		if all, err = a.tryEndpoints(t, workspace, export); err == nil && len(all) != n {
			err = fmt.Errorf("%s has the endpoints %v, not %d", export, all, n)
		}
		return err
	})
	return all
}

// Settled requires that up has nothing to do. The agent itself writes its lease, and the state of objects.
func (a *Agents) Settled(t *testing.T) {
	t.Helper()
	before := a.IDs(t)
	a.Up(t).Changed(t, 0)
	require.Empty(t, a.Kcpctl(t, "diff").OK(t).Stdout)
	require.Equal(t, before, a.IDs(t))
}

// LeavesNothing removes the setup. It leaves neither the lease and the state of the agent, nor objects of it without a
// namespace, nor objects that wait for it.
func (a *Agents) LeavesNothing(t *testing.T) {
	LeavesNothing(t, a.Setup)
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "publishedresources.syncagent.kcp.io"} {
		for _, o := range a.Service.List(t.Context(), t, kind) {
			require.NotContains(t, o.GetName(), a.Name, kind)
		}
	}
	list, err := a.Below(t).Resource(a.widgets).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}
