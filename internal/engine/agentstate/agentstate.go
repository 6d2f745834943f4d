// Package agentstate reads the state of agents: their Leases, what they have published, and their consumers. It writes
// nothing.
package agentstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// leaseFresh is how old the lease of an agent may be. The agent renews it every two seconds (controller-runtime:
	// RetryPeriod).
	leaseFresh = 20 * time.Second
	// leaseRenewed is the time in which the holder renews it.
	leaseRenewed = 3 * time.Second

	// rivalWrites is the time in which two agents of an APIExport both write to it, rivalPause the time between two
	// reads, and rivalReads how often it is read.
	rivalWrites = 1500 * time.Millisecond
	rivalPause  = 200 * time.Millisecond
	rivalReads  = 12
)

// PublishedKind is the kind of the PublishedResources of agents.
var PublishedKind = schema.GroupVersionKind{Group: agent.Group, Version: "v1alpha1", Kind: agent.Kind}

// Reader reads objects of clusters.
type Reader interface {
	// Read returns an object on the cluster of a component, or nil if it does not exist. The cluster of an agent on
	// this machine is the one whose APIs it publishes.
	Read(ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind,
		namespace, name string) (*unstructured.Unstructured, error)
}

// Agent is the state of an agent.
type Agent struct {
	*topology.Component
	Runtime Reader
	// Proxy is a client of a front-proxy.
	Proxy *kcp.Client
	Now   func() time.Time

	// schemas are the APIResourceSchemas of the PublishedResources, as Publishes has found them.
	schemas []string
	// renewed is the lease as it was first seen. Clocks may differ, so a change shows that it is renewed.
	renewed string
}

// Publishes returns nil if the agent holds its lease, and all its PublishedResources are in the APIExport with the
// claims that follow from them, or the reason why not.
func (a *Agent) Publishes(ctx context.Context) error {
	if _, err := a.Leads(ctx); err != nil {
		return err
	}
	if _, err := a.Published(ctx); err != nil {
		return err
	}
	return a.Asks(ctx)
}

// FindExport returns the APIExport of the agent, or nil if it does not exist.
func (a *Agent) FindExport(ctx context.Context) (*unstructured.Unstructured, error) {
	export, err := a.Proxy.Object(ctx, plan.Ref{Workspace: a.Agent.Workspace,
		GroupVersionKind: kcpapi.APIExport.GroupVersionKind, Name: a.Agent.APIExport})
	if err != nil {
		return nil, fmt.Errorf("read APIExport %s in %s: %w", a.Agent.APIExport, a.Agent.Workspace, err)
	}
	return export, nil
}

// Export returns the APIExport of the agent.
func (a *Agent) Export(ctx context.Context) (*unstructured.Unstructured, error) {
	export, err := a.FindExport(ctx)
	switch {
	case err != nil:
		return nil, err
	case export == nil:
		return nil, fmt.Errorf("APIExport %s in %s does not exist", a.Agent.APIExport, a.Agent.Workspace)
	}
	return export, nil
}

// Other returns the name on an APIExport if it is the one of another agent.
func (a *Agent) Other(export *unstructured.Unstructured) string {
	if name := export.GetAnnotations()[agent.AnnotationName]; name != topology.AgentName(a.Setup, a.Name) {
		return name
	}
	return ""
}

// Rival returns the name of another agent that publishes through the APIExport, or an empty one, while the agent runs.
// Two agents write their names to it in turn, about once a second (api-syncagent:
// internal/controller/apiexport/reconciler.go), so one that changes is read more often.
func (a *Agent) Rival(ctx context.Context) (string, error) {
	version := ""
	pause := rivalWrites
	for n := range rivalReads {
		export, err := a.FindExport(ctx)
		if err != nil || export == nil {
			return "", err
		}
		if name := a.Other(export); name != "" {
			return name, nil
		}
		if n == 1 {
			if export.GetResourceVersion() == version {
				return "", nil
			}
			pause = rivalPause
		}
		version = export.GetResourceVersion()
		if err := poll.Pause(ctx, pause); err != nil {
			return "", err
		}
	}
	return "", nil
}

// Published returns how many PublishedResources of the agent are in the APIExport, and the reason if not all are.
func (a *Agent) Published(ctx context.Context) (n int, reason error) {
	export, err := a.Export(ctx)
	if err != nil {
		return 0, err
	}
	a.schemas = nil
	type answer struct {
		schema string
		err    error
	}
	all := a.Agent.PublishedResources
	answers := parallel.Map(parallel.Limit, all, func(p v1alpha1.PublishedResource) (found answer) {
		found.schema, found.err = a.published(ctx, export, p.Name)
		return found
	})
	for i, found := range answers {
		switch {
		case found.err == nil:
			a.schemas = append(a.schemas, found.schema)
		case reason == nil:
			reason = fmt.Errorf("PublishedResource %s: %w", all[i].Name, found.err)
		}
	}
	return len(a.schemas), reason
}

// staleError means that a Lease looks as if its holder does not renew it.
type staleError struct {
	holder, lease string
	age           time.Duration
}

func (e *staleError) Error() string {
	return fmt.Sprintf("%s holds Lease %s, but has not renewed it for %s", e.holder, e.lease, e.age.Round(time.Second))
}

// Leader is Leads for callers that ask once. A Lease that looks old is read a second time, because clocks may differ.
func (a *Agent) Leader(ctx context.Context) (holder string, err error) {
	holder, err = a.Leads(ctx)
	if !errors.As(err, new(*staleError)) {
		return holder, err
	}
	if poll.Pause(ctx, leaseRenewed) != nil {
		return "", err
	}
	return a.Leads(ctx)
}

// Leads returns the replica that holds the Lease, if it renews it, or the reason why not.
func (a *Agent) Leads(ctx context.Context) (holder string, err error) {
	name := topology.AgentLease(a.Setup, a.Name)
	lease, err := a.service(ctx, kind.Lease.GroupVersionKind, a.ServiceNamespace(), name)
	if err != nil {
		return "", fmt.Errorf("read Lease %s: %w", name, err)
	}
	if lease == nil {
		return "", fmt.Errorf("starting, has no Lease %s yet", name)
	}
	holder, _, _ = unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	at, err := time.Parse(time.RFC3339Nano, renewed)
	if a.renewed == "" {
		a.renewed = renewed
	}
	switch age := a.Now().Sub(at); {
	case holder == "":
		return "", fmt.Errorf("no replica holds Lease %s yet", name)
	case err != nil:
		return "", fmt.Errorf("Lease %s: %w", name, err)
	case renewed != a.renewed, age.Abs() < leaseFresh:
		return holder, nil
	default:
		return "", &staleError{holder, name, age}
	}
}

// published returns the schema of a PublishedResource, which the APIExport has, or the reason why there is none.
func (a *Agent) published(ctx context.Context, export *unstructured.Unstructured, name string) (string, error) {
	live, err := a.service(ctx, PublishedKind, "", name)
	switch {
	case err != nil:
		return "", err
	case live == nil:
		return "", fmt.Errorf("does not exist")
	}
	want, _, _ := unstructured.NestedString(live.Object, "status", "resourceSchemaName")
	if want == "" {
		return "", fmt.Errorf("the agent has made no APIResourceSchema yet")
	}
	resources, _, _ := unstructured.NestedSlice(export.Object, "spec", "resources")
	for _, r := range resources {
		if fields, ok := r.(map[string]any); ok && fields["schema"] == want {
			return want, nil
		}
	}
	return "", fmt.Errorf("APIExport %s does not have its schema %s yet", export.GetName(), want)
}

// Bound returns nil if the APIs of Publishes are served to all consumers, or the reason why not. An APIBinding is bound
// before its APIExport has any resources.
func (a *Agent) Bound(ctx context.Context) error {
	for _, consumer := range a.Agent.Bind {
		binding, err := a.Proxy.Object(ctx, plan.Ref{Workspace: consumer,
			GroupVersionKind: kcpapi.APIBinding.GroupVersionKind, Name: a.Agent.APIExport})
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
func (a *Agent) service(ctx context.Context, gvk schema.GroupVersionKind,
	namespace, name string) (*unstructured.Unstructured, error) {
	if path := a.Agent.ServiceWorkspace(); path != "" {
		return a.Proxy.Object(ctx, plan.Ref{Workspace: path, GroupVersionKind: gvk, Namespace: namespace, Name: name})
	}
	return a.Runtime.Read(ctx, a.Component, gvk, namespace, name)
}
