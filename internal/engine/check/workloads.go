package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
)

// clustersReady checks the state of every cluster of spec.workloads.
func clustersReady(ctx context.Context, s *Subject) (o outcome) {
	clusters := s.Topology.OfKind(topology.Physical)
	if len(clusters) == 0 {
		return skipped("the setup has no physical clusters")
	}
	return every(clusters, func(c *topology.Component) (o outcome) {
		state, err := s.Runtime.State(ctx, c)
		switch {
		case err != nil:
			o.fail("%s: %s", c.ID(), reason(ctx, err))
		case !state.Ready:
			o.fail("%s: %s", c.ID(), state.Reason)
		}
		return o
	})
}

// compute is the compute workspace of spec.workloads.
type compute struct {
	*Subject
	*v1alpha1.Workloads
	proxy *kcp.Client
	// export is the APIExport with the published APIs, and clusters are the Clusters.
	export   *unstructured.Unstructured
	clusters []*api.Cluster
}

// inCompute runs a check of the compute workspace, if APIs are published, through a front-proxy.
func inCompute(ask func(context.Context, *compute) outcome) func(context.Context, *Subject) outcome {
	return func(ctx context.Context, s *Subject) (o outcome) {
		w := s.Topology.Setup.Spec.Workloads
		if w == nil {
			return skipped("the setup has no workloads")
		}
		proxies := s.readyProxies()
		if len(proxies) == 0 {
			return skipped("no front-proxy is ready")
		}
		proxy, err := s.client(proxies[0])
		if err != nil {
			return fromError(err)
		}
		c := &compute{Subject: s, Workloads: w, proxy: proxy}
		switch err := c.read(ctx); {
		case err != nil:
			return fromError(err)
		case c.export == nil:
			return skipped("no API is published")
		}
		return ask(ctx, c)
	}
}

// place names an object of the compute workspace.
func (c *compute) place(kind schema.GroupVersionKind, name string) plan.Ref {
	return plan.Ref{Workspace: c.Workspace, GroupVersionKind: kind, Name: name}
}

// object returns an object of the compute workspace, or nil.
func (c *compute) object(ctx context.Context, kind schema.GroupVersionKind,
	name string) (*unstructured.Unstructured, error) {
	o, err := c.proxy.Object(ctx, c.place(kind, name))
	if err != nil {
		return nil, fmt.Errorf("read %s %s in %s: %w", kind.Kind, name, c.Workspace, err)
	}
	return o, nil
}

// read reads the APIExport and the Clusters.
func (c *compute) read(ctx context.Context) (err error) {
	if c.export, err = c.object(ctx, kcpapi.APIExport.GroupVersionKind, api.ExportWorkloads); err != nil ||
		c.export == nil {
		return err
	}
	all, err := c.proxy.Objects(ctx, c.place(api.ClusterGVK(), ""), "")
	if err != nil {
		return err
	}
	for i := range all {
		cl, err := api.ClusterOf(&all[i])
		if err != nil {
			return err
		}
		if cl.DeletionTimestamp == nil {
			c.clusters = append(c.clusters, cl)
		}
	}
	return nil
}

// settleTime is how long the controller may take to write the policies that follow from the Clusters.
const settleTime = 2 * time.Second

// guarded looks for the admission policies that protect objects of the published APIs, and clusters from objects.
func guarded(ctx context.Context, c *compute) (o outcome) {
	exported := agentstate.Resources(c.export)
	for _, want := range guard.Objects(exported) {
		o.absorb("", c.written(ctx, want))
	}
	if placed := c.confinesPlacement(ctx, exported); placed.status == "" {
		return o
	}
	// A Cluster can have changed a moment ago.
	_ = poll.Pause(ctx, settleTime) // the next request fails if the context has ended
	again := &compute{Subject: c.Subject, Workloads: c.Workloads, proxy: c.proxy}
	if err := again.read(ctx); err != nil {
		o.add(err)
		return o
	}
	o.absorb("", again.confinesPlacement(ctx, exported))
	return o
}

// confinesPlacement looks for the policy of who may give an object the label of a cluster.
func (c *compute) confinesPlacement(ctx context.Context, exported []schema.GroupResource) (o outcome) {
	id := topology.IDOf(topology.Workloads, topology.ControllerName)
	controller := guard.User{Name: c.state.User(c.Topology.Component(id))} // it has a certificate
	for _, want := range slices.Concat(guard.Placement(exported, guard.Open(c.clusters), controller),
		guard.Members(exported, controller)) {
		o.absorb("", c.written(ctx, want))
	}
	return o
}

// written compares an object of the compute workspace with the object that the controller writes.
func (c *compute) written(ctx context.Context, want *unstructured.Unstructured) (o outcome) {
	live, err := c.object(ctx, want.GroupVersionKind(), want.GetName())
	switch {
	case err != nil:
		o.add(err)
	case live == nil:
		o.fail("%s %s in %s does not exist", want.GetKind(), want.GetName(), c.Workspace)
	case !contains(live.Object["spec"], want.Object["spec"]):
		o.fail("%s %s in %s is not the one that the controller writes", want.GetKind(), want.GetName(), c.Workspace)
	}
	return o
}

// contains reports whether a value has all fields of another one. API servers add fields with their defaults.
func contains(live, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := live.(map[string]any)
		for key, value := range want {
			ok = ok && contains(fields[key], value)
		}
		return ok
	case []any:
		items, _ := live.([]any)
		return slices.EqualFunc(items, want, contains)
	}
	return live == want
}

// compatible looks for APIs that clusters cannot serve with the published schema.
func compatible(_ context.Context, c *compute) (o outcome) {
	for _, cl := range c.clusters {
		if condition := meta.FindStatusCondition(cl.Status.Conditions, api.ConditionAPIsCompatible); condition != nil &&
			condition.Status == metav1.ConditionUnknown {
			o.warn("%s: %s", topology.IDOf(topology.Physical, cl.Name), condition.Message)
		}
		for _, a := range cl.Status.APIs {
			if a.State != api.APIIncompatible {
				continue
			}
			gr := a.GroupResource()
			served := slices.ContainsFunc(c.clusters,
				func(other *api.Cluster) bool { return other.API(gr).State.Serves() })
			report := o.fail
			if served {
				report = o.warn // its objects run elsewhere
			}
			report("%s: %s: %s", topology.IDOf(topology.Physical, cl.Name), gr, a.Message)
		}
	}
	return o
}
