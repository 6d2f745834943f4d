package agentstate

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Unaccepted returns the permission claims of the APIExport that a consumer has not accepted, such as secrets or widgets.example.com. Without
// them, the agent cannot read or write these objects in the workspace.
func (a *Agent) Unaccepted(ctx context.Context, export *unstructured.Unstructured, consumer string) ([]string, error) {
	binding, err := a.Proxy.Object(ctx, kcp.Place{Workspace: consumer, GroupVersionKind: kcpapi.APIBinding.GroupVersionKind, Name: a.Agent.APIExport})
	if err != nil || binding == nil {
		return nil, err
	}
	accepted := map[string]bool{}
	for _, c := range claimsOf(binding) {
		accepted[claimName(c)] = c["state"] == "Accepted"
	}
	var out []string
	for _, c := range claimsOf(export) {
		if name := claimName(c); !accepted[name] {
			out = append(out, name)
		}
	}
	return out, nil
}

func claimsOf(o *unstructured.Unstructured) []map[string]any {
	all, _, _ := unstructured.NestedSlice(o.Object, "spec", "permissionClaims")
	var out []map[string]any
	for _, c := range all {
		if fields, ok := c.(map[string]any); ok {
			out = append(out, fields)
		}
	}
	return out
}

// claimName is what a claim is about.
func claimName(claim map[string]any) string {
	group, _ := claim["group"].(string)
	resource, _ := claim["resource"].(string)
	return schema.GroupResource{Group: group, Resource: resource}.String()
}

// Endpoint is where a shard serves the APIExport of an agent.
type Endpoint struct {
	// URL is as the agent dials it.
	URL *url.URL
	// Shard is the shard. It is nil if the setup has none with this URL.
	Shard *topology.Component
}

// Endpoints returns where shards serve the APIExport: all that have consumers.
func (a *Agent) Endpoints(ctx context.Context, t *topology.Topology) ([]Endpoint, error) {
	slice, err := a.Proxy.Object(ctx, kcp.Place{Workspace: a.Agent.Workspace, GroupVersionKind: kcpapi.APIExportEndpointSlice.GroupVersionKind, Name: a.Agent.APIExport})
	if err != nil {
		return nil, fmt.Errorf("read APIExportEndpointSlice %s in %s: %w", a.Agent.APIExport, a.Agent.Workspace, err)
	}
	if slice == nil {
		return nil, nil
	}
	return EndpointsOf(slice, t), nil
}

// EndpointsOf returns the endpoints of an APIExportEndpointSlice with their shards.
func EndpointsOf(slice *unstructured.Unstructured, t *topology.Topology) []Endpoint {
	all, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
	var out []Endpoint
	for _, e := range all {
		fields, _ := e.(map[string]any)
		text, _ := fields["url"].(string)
		u, err := url.Parse(text)
		if err != nil || text == "" {
			continue
		}
		at := Endpoint{URL: u}
		for _, c := range t.Shards() {
			if strings.HasPrefix(text, strings.TrimSuffix(c.VirtualWorkspaceURL, "/")+"/") {
				at.Shard = c
			}
		}
		out = append(out, at)
	}
	return out
}

// Watched is what an agent watches first at each endpoint (multicluster-provider: pkg/provider/provider.go).
const Watched = "/clusters/*/apis/apis.kcp.io/v1alpha1/apibindings?limit=1"

// Answers returns nil if an endpoint, which server serves, answers the agent, or the reason why not. It requests what the agent requests
// first, with the agent's own certificate.
func (a *Agent) Answers(ctx context.Context, e Endpoint, server *topology.Component, state *pki.State, d kcp.Dialer) error {
	client := kcp.New(kcp.Options{
		URL: server.URLFrom(server.Cluster), CA: state.CAs[topology.ServerCA].Trusted(),
		Pair: state.Leaves[pki.KeyOf(a.Component, topology.CertClient)],
		Dial: func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, server) },
	})
	defer client.Close()
	answer, err := client.Get(ctx, e.URL.Path+Watched, nil)
	switch {
	case err != nil:
		return err
	case answer.Code != http.StatusOK:
		return fmt.Errorf("%s answers the agent with HTTP status %d: %s", e.URL, answer.Code, strings.TrimSpace(answer.Message))
	}
	return nil
}

// Resources returns the resources of the APIExport.
func Resources(export *unstructured.Unstructured) []schema.GroupResource {
	all, _, _ := unstructured.NestedSlice(export.Object, "spec", "resources")
	var out []schema.GroupResource
	for _, r := range all {
		fields, _ := r.(map[string]any)
		group, _ := fields["group"].(string)
		name, _ := fields["name"].(string)
		out = append(out, schema.GroupResource{Group: group, Resource: name})
	}
	return out
}
