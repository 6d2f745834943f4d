package cluster

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// answers has the answers of an API server, by path.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	code := http.StatusOK
	body, ok := a[r.URL.Path]
	if !ok {
		code, body = http.StatusNotFound, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
	}
	return &http.Response{
		StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// A namespace is deleted only if it is empty, so an object that is not seen is lost.
func TestContentsOfANamespace(t *testing.T) {
	const (
		kind      = `{"kind": "APIGroupDiscoveryList", "items": [`
		core      = `{"versions": [{"version": "v1", "freshness": "Current", "resources": [{"resource": "configmaps", "scope": "Namespaced", "verbs": ["list"]}]}]}`
		gateway   = `{"metadata": {"name": "gateway.networking.k8s.io"}, "versions": [{"version": "v1", "resources": [{"resource": "gateways", "scope": "Namespaced", "verbs": ["list"]}]}, `
		alpha     = `{"version": "v1alpha2", "resources": [{"resource": "gateways", "scope": "Namespaced", "verbs": ["list"]}, {"resource": "tcproutes", "scope": "Namespaced", "verbs": ["list"]}]}`
		routes    = "/apis/gateway.networking.k8s.io/v1alpha2/namespaces/kcp/tcproutes"
		route     = `{"kind": "List", "items": [{"apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TCPRoute", "metadata": {"name": "theirs"}}]}`
		stale     = `{"version": "v1alpha2", "freshness": "Stale"}`
		plainList = `{"kind": "APIGroupList", "groups": [{"name": "gateway.networking.k8s.io"}]}`
	)
	for name, tc := range map[string]struct {
		groups string
		want   []string
		err    string
	}{
		"a resource that the preferred version does not have": {kind + gateway + alpha + "]}]}", []string{"TCPRoute/theirs"}, ""},
		"an API whose server does not answer": {kind + gateway + stale + "]}]}", nil,
			"which objects are in a namespace is not known: the API gateway.networking.k8s.io/v1alpha2 is not available (context dev)"},
		"a server that does not list resources": {plainList, nil,
			`which objects are in a namespace is not known: /apis is of kind "APIGroupList", and not APIGroupDiscoveryList (context dev)`},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: answers{
				"/api": kind + core + "]}", "/apis": tc.groups, routes: route,
				"/apis/gateway.networking.k8s.io/v1/namespaces/kcp/gateways": `{"kind": "List", "items": []}`,
			}}
			d, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "https://10.0.0.1:6443"}, client)
			require.NoError(t, err)
			c, err := New(topology.Cluster{Name: "eu"}, Options{
				API: func(topology.Cluster) (*API, error) { return &API{Context: "dev", Dynamic: d, HTTP: client}, nil },
				Now: time.Now, Notify: t.Logf,
			})
			require.NoError(t, err)
			found, err := c.Contents(t.Context(), "kcp")
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				require.Contains(t, clierr.Hint(err), "kubectl get apiservices")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, found)
		})
	}
}
