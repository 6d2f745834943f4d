package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/agent"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	// leaseFresh is how old the lease of an agent may be. The agent renews it every two seconds (controller-runtime: RetryPeriod).
	leaseFresh = 20 * time.Second
	// agentLogLines is how many lines of an agent's log are read for the reason why it does not publish.
	agentLogLines = 50
)

// The kinds of objects that show whether an agent works.
var (
	leaseKind     = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	secretKind    = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	publishedKind = schema.GroupVersionKind{Group: agent.Group, Version: "v1alpha1", Kind: agent.Kind}
	exportKind    = schema.GroupVersionKind{Group: "apis.kcp.io", Version: "v1alpha2", Kind: "APIExport"}
	bindingKind   = schema.GroupVersionKind{Group: "apis.kcp.io", Version: "v1alpha2", Kind: "APIBinding"}
)

// Reader reads objects of clusters.
type Reader interface {
	// Read returns an object on the cluster of a component, or nil if it does not exist.
	Read(ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
}

// AgentRuntime is what shows whether an agent works.
type AgentRuntime interface {
	Reader
	LogReader
}

// publishes waits until an agent publishes its resources, accepts what the APIExport claims from its consumers, and waits until they
// can use the APIs, and the agent finds the objects of all of them: also those on a shard that had no consumer before.
func (r *rollout) publishes(ctx context.Context, c *topology.Component) error {
	if c.Replicas == 0 {
		return nil // it is paused
	}
	through := r.frontProxy()
	if through == nil {
		r.note(fmt.Sprintf("%s: no front-proxy can be reached, so it is not known whether it publishes its resources", c.ID()))
		return nil
	}
	proxy, err := r.connect(through)
	if err != nil {
		return err
	}
	defer proxy.Close()
	a := &Agent{Component: c, Runtime: r.Runtime, Proxy: proxy, Now: r.Now}
	if err := r.until(ctx, c, func() error { return a.withLog(ctx, a.Publishes(ctx)) }); err != nil {
		return err
	}
	if err := r.acceptClaims(ctx, c); err != nil {
		return err
	}
	if err := r.until(ctx, c, func() error { return a.Bound(ctx) }); err != nil {
		return err
	}
	return r.endpoints(ctx, c)
}

// acceptClaims applies the APIBindings that this run has applied once more: an agent adds claims to its APIExport when it starts.
func (r *rollout) acceptClaims(ctx context.Context, c *topology.Component) error {
	bindings := slices.DeleteFunc(slices.Clone(r.changes.of[c.ID()].items), func(it plan.Item) bool {
		return it.GroupVersionKind != bindingKind
	})
	if len(bindings) == 0 {
		return nil
	}
	options := r.Options.PlanOptions
	options.PKI = r.state
	return r.Runtime.Apply(ctx, bindings, options)
}

// Agent tells how far an agent is.
type Agent struct {
	*topology.Component
	Runtime AgentRuntime
	// Proxy is a client of a front-proxy.
	Proxy *kcp.Client
	Now   func() time.Time

	// schemas are the APIResourceSchemas of the PublishedResources, as Publishes has found them.
	schemas []string
	// renewed is the lease as it was first seen. Clocks may differ, so a change shows that it is renewed.
	renewed string
}

// Publishes returns nil if the agent holds its lease, and all its PublishedResources are in the APIExport, or the reason why not.
func (a *Agent) Publishes(ctx context.Context) error {
	if err := a.leads(ctx); err != nil {
		return err
	}
	export, err := a.Proxy.Object(ctx, kcp.Place{Workspace: a.Agent.Workspace, GroupVersionKind: exportKind, Name: a.Agent.APIExport})
	switch {
	case err != nil:
		return fmt.Errorf("read APIExport %s in %s: %w", a.Agent.APIExport, a.Agent.Workspace, err)
	case export == nil:
		return fmt.Errorf("APIExport %s in %s does not exist", a.Agent.APIExport, a.Agent.Workspace)
	}
	a.schemas = nil
	for _, p := range a.Agent.PublishedResources {
		if err := a.published(ctx, export, p.Name); err != nil {
			return fmt.Errorf("PublishedResource %s: %w", p.Name, err)
		}
	}
	return nil
}

// leads returns nil if a replica holds the lease and renews it.
func (a *Agent) leads(ctx context.Context) error {
	name := topology.AgentLease(a.Setup, a.Name)
	lease, err := a.service(ctx, leaseKind, a.ServiceNamespace(), name)
	if err != nil {
		return fmt.Errorf("read Lease %s: %w", name, err)
	}
	if lease == nil {
		return fmt.Errorf("starting, has no Lease %s yet", name)
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	at, err := time.Parse(time.RFC3339Nano, renewed)
	if a.renewed == "" {
		a.renewed = renewed
	}
	switch age := a.Now().Sub(at); {
	case holder == "":
		return fmt.Errorf("no replica holds Lease %s yet", name)
	case err != nil:
		return fmt.Errorf("Lease %s: %w", name, err)
	case renewed != a.renewed, age.Abs() < leaseFresh:
		return nil
	default:
		return fmt.Errorf("%s holds Lease %s, but has not renewed it for %s", holder, name, age.Round(time.Second))
	}
}

// published returns nil if a PublishedResource has a schema, and the APIExport has this schema.
func (a *Agent) published(ctx context.Context, export *unstructured.Unstructured, name string) error {
	live, err := a.service(ctx, publishedKind, "", name)
	switch {
	case err != nil:
		return err
	case live == nil:
		return fmt.Errorf("does not exist")
	}
	want, _, _ := unstructured.NestedString(live.Object, "status", "resourceSchemaName")
	if want == "" {
		return fmt.Errorf("the agent has made no APIResourceSchema yet")
	}
	resources, _, _ := unstructured.NestedSlice(export.Object, "spec", "resources")
	for _, r := range resources {
		if fields, ok := r.(map[string]any); ok && fields["schema"] == want {
			a.schemas = append(a.schemas, want)
			return nil
		}
	}
	return fmt.Errorf("APIExport %s does not have its schema %s yet", export.GetName(), want)
}

// Bound returns nil if the APIs of Publishes are served to all consumers, or the reason why not. An APIBinding is bound before its
// APIExport has any resources.
func (a *Agent) Bound(ctx context.Context) error {
	for _, consumer := range a.Agent.Bind {
		binding, err := a.Proxy.Object(ctx, kcp.Place{Workspace: consumer, GroupVersionKind: bindingKind, Name: a.Agent.APIExport})
		switch {
		case err != nil:
			return fmt.Errorf("read APIBinding %s in %s: %w", a.Agent.APIExport, consumer, err)
		case binding == nil:
			return fmt.Errorf("APIBinding %s in %s does not exist", a.Agent.APIExport, consumer)
		}
		if err := kcp.BindingReady(binding); err != nil {
			return fmt.Errorf("APIBinding %s in %s: %w", a.Agent.APIExport, consumer, err)
		}
		served := boundSchemas(binding)
		for _, schema := range a.schemas {
			if !slices.Contains(served, schema) {
				return fmt.Errorf("APIBinding %s in %s does not serve %s yet", a.Agent.APIExport, consumer, schema)
			}
		}
	}
	return nil
}

// boundSchemas returns the names of the APIResourceSchemas that an APIBinding serves.
func boundSchemas(binding *unstructured.Unstructured) []string {
	resources, _, _ := unstructured.NestedSlice(binding.Object, "status", "boundResources")
	var out []string
	for _, r := range resources {
		if fields, ok := r.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(fields, "schema", "name")
			out = append(out, name)
		}
	}
	return out
}

// service reads an object of the agent's cluster, or of the workspace that takes its place.
func (a *Agent) service(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if path := a.Agent.ServiceWorkspace; path != "" {
		return a.Proxy.Object(ctx, kcp.Place{Workspace: path, GroupVersionKind: gvk, Namespace: namespace, Name: name})
	}
	return a.Runtime.Read(ctx, a.Component, gvk, namespace, name)
}

// withLog adds the last error that the agent has logged to the reason why it does not work.
func (a *Agent) withLog(ctx context.Context, reason error) error {
	if reason == nil {
		return nil
	}
	var log bytes.Buffer
	if err := a.Runtime.Logs(ctx, a.Component, LogOptions{Tail: agentLogLines}, &log); err != nil {
		return reason
	}
	if last := LastAgentError(log.String()); last != "" {
		return fmt.Errorf("%w; the agent logs: %s", reason, last)
	}
	return reason
}

// LastAgentError returns the message of the last line of an agent's log with level error or fatal, or "". The lines are JSON
// (api-syncagent: internal/log); those of several pods begin with their names.
func LastAgentError(log string) string {
	lines := strings.Split(log, "\n")
	for _, line := range slices.Backward(lines) {
		_, object, ok := strings.Cut(line, "{")
		if !ok {
			continue
		}
		var entry struct{ Level, Msg, Message, Error string }
		if json.Unmarshal([]byte("{"+object), &entry) != nil {
			continue
		}
		if level := strings.ToLower(entry.Level); level != "error" && level != "fatal" {
			continue
		}
		text := entry.Msg + entry.Message
		if entry.Error != "" {
			text += ": " + entry.Error
		}
		return text
	}
	return ""
}
