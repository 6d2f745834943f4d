package agentstate

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Claims returns the permission claims that follow from the agent in the setup file.
func (a *Agent) Claims() []kcp.Claim {
	var out []kcp.Claim
	for _, c := range agent.PermissionClaims(&a.Agent.Agent) {
		out = append(out, kcp.Claim{
			GroupResource: schema.GroupResource{Group: c.Group, Resource: c.Resource},
			IdentityHash:  c.IdentityHash, Verbs: c.Verbs,
		})
	}
	return out
}

// Asks returns nil if the APIExport has all claims that follow from the agent, or the reason why not: the agent adds
// its claims when it starts. It needs no claim for a resource of the APIExport itself.
func (a *Agent) Asks(ctx context.Context) error {
	export, err := a.Export(ctx)
	if err != nil {
		return err
	}
	own, asked := Resources(export), kcp.Asked(export)
	for _, c := range a.Claims() {
		if !slices.Contains(own, c.GroupResource) && len(kcp.Accept([]kcp.Claim{c}, asked)) == 0 {
			return fmt.Errorf("APIExport %s does not claim %s yet", export.GetName(), c)
		}
	}
	return nil
}

// Beyond returns the claims of an APIExport, or those that an APIBinding accepts, that do not follow from the agent,
// with who wrote them.
func (a *Agent) Beyond(o *unstructured.Unstructured, claims []kcp.Claim) []string {
	var out []string
	for _, c := range kcp.Beyond(claims, a.Claims()) {
		out = append(out, kcp.Describe(o, c))
	}
	return out
}

// Accepted returns the claims that a consumer has to accept and has not, such as secrets or widgets.example.com, and
// the ones that it accepts beyond that. Without the missing ones, the agent cannot read or write these objects in the
// workspace.
func (a *Agent) Accepted(ctx context.Context, export *unstructured.Unstructured,
	consumer string) (missing, beyond []string, err error) {
	binding, err := a.Proxy.Object(ctx,
		plan.Ref{Workspace: consumer, GroupVersionKind: kcpapi.APIBinding.GroupVersionKind, Name: a.Agent.APIExport})
	if err != nil || binding == nil {
		return nil, nil, err
	}
	accepted := kcp.Accepted(binding)
	for _, c := range kcp.Beyond(kcp.Accept(a.Claims(), kcp.Asked(export)), accepted) {
		missing = append(missing, c.String())
	}
	return missing, a.Beyond(binding, accepted), nil
}

// Endpoint is where a shard serves the APIExport of an agent.
type Endpoint struct {
	// URL is as the agent dials it.
	URL *url.URL
	// Shard is the shard. It is nil if the setup has no shard with this URL.
	Shard *topology.Component
}

// Endpoints returns where shards serve the APIExport: all that have consumers.
func (a *Agent) Endpoints(ctx context.Context, t *topology.Topology) ([]Endpoint, error) {
	slice, err := a.Proxy.Object(ctx, plan.Ref{Workspace: a.Agent.Workspace,
		GroupVersionKind: kcpapi.APIExportEndpointSlice.GroupVersionKind, Name: a.Agent.APIExport})
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

// Answers returns nil if an endpoint, which server serves, answers the agent, or the reason why not. It requests what
// the agent requests first, with the agent's own certificate.
func (a *Agent) Answers(ctx context.Context, e Endpoint, server *topology.Component, state *pki.State,
	d kcp.Dialer) error {
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
		return fmt.Errorf("%s answers the agent with HTTP status %d: %s", e.URL, answer.Code,
			strings.TrimSpace(answer.Message))
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
