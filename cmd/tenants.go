package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// tenantTime is how long kcp or a physical cluster may take to answer, before a command continues without the answer.
const tenantTime = 15 * time.Second

// tenants are what workspaces run in physical clusters: the namespaces there with the ID of the setup.
type tenants struct {
	session *session
	// id is the ID of the setup in physical clusters: the one of the installation. It is empty if it is not known.
	id string
	// paths are the paths of workspaces by their logical clusters, as far as they are known.
	paths    map[string]string
	clusters []*tenantCluster
}

// tenantCluster is what was found in a physical cluster.
type tenantCluster struct {
	*topology.Component
	client tenantClient
	// all are the namespaces of all setups. err is why they could not be read.
	all []unstructured.Unstructured
	err error
}

// tenantClient is what tenants need of a client for a physical cluster.
type tenantClient interface {
	Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error)
	Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error)
}

func namespacePlace(name string) plan.Ref {
	return plan.Ref{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Name: name}
}

// findTenants reads the namespaces of all setups in some physical clusters, without kcp. A cluster that cannot be read
// does not fail it.
func findTenants(ctx context.Context, s *session, of ...*topology.Component) *tenants {
	t := &tenants{session: s}
	if known, err := s.runtime.Record(ctx); err == nil {
		t.id = known.Installation
	}
	for _, c := range of {
		w := c.Physical.WorkloadCluster
		cl := &tenantCluster{Component: c}
		client, err := s.openPhysical(topology.Cluster{Name: w.Name, Context: w.Context,
			Kubeconfig: w.Kubeconfig}, w.Server)
		if err != nil {
			cl.err = err
		} else {
			cl.client = client
		}
		t.clusters = append(t.clusters, cl)
	}
	t.look(ctx)
	return t
}

// look reads the namespaces of the clusters.
func (t *tenants) look(ctx context.Context) {
	parallel.Map(parallel.Limit, t.clusters, func(c *tenantCluster) struct{} {
		if c.client != nil {
			ctx, cancel := context.WithTimeoutCause(ctx, tenantTime, fmt.Errorf("no answer after %s", tenantTime))
			defer cancel()
			c.all, c.err = c.client.Objects(ctx, namespacePlace(""), api.LabelSetup)
		}
		return struct{}{}
	})
}

// readPaths reads the paths of the workspaces. They are not known if kcp does not answer.
func (t *tenants) readPaths(ctx context.Context) {
	s := t.session
	ctx, cancel := context.WithTimeoutCause(ctx, tenantTime, fmt.Errorf("no answer after %s", tenantTime))
	defer cancel()
	names := t.workspaces()
	if len(names) == 0 {
		return
	}
	state, err := s.loadPKI(ctx)
	if err != nil {
		return
	}
	client, err := run.ConnectFrontProxy(s.runtime, s.topology, nil, state, s.env.Now())
	if err != nil {
		return
	}
	defer client.Close()
	t.paths = (&compute{client, s, s.file.Setup.Spec.Workloads.Workspace, state}).paths(ctx, names)
}

// own returns the namespaces of the setup in a cluster. Namespaces of other setups are never among them.
func (t *tenants) own(c *tenantCluster) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(c.all), func(ns unstructured.Unstructured) bool {
		return t.id == "" || ns.GetLabels()[api.LabelSetup] != t.id
	})
}

// others returns how many namespaces of other setups a cluster has, by ID. All are others if the ID of this one is not
// known.
func (t *tenants) others(c *tenantCluster) map[string][]unstructured.Unstructured {
	out := map[string][]unstructured.Unstructured{}
	for _, ns := range c.all {
		if id := ns.GetLabels()[api.LabelSetup]; id != t.id || t.id == "" {
			out[id] = append(out[id], ns)
		}
	}
	return out
}

// workspaces returns the logical clusters with namespaces of a setup.
func (t *tenants) workspaces() []string {
	out := map[string]bool{}
	for _, c := range t.clusters {
		for _, ns := range c.all {
			out[ns.GetLabels()[api.LabelWorkspace]] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// describe says how many namespaces there are, and of which workspaces: 3 namespaces of workspaces root:a, root:b.
func (t *tenants) describe(all []unstructured.Unstructured) string {
	names := map[string]bool{}
	for _, ns := range all {
		name := ns.GetLabels()[api.LabelWorkspace]
		names[cmp.Or(t.paths[name], name)] = true
	}
	word := "workspaces "
	if len(names) == 1 {
		word = "workspace "
	}
	return plural(len(all), "namespace", "namespaces") + " of " + word + gather.Few(slices.Sorted(maps.Keys(names)),
		gather.Listed, ", ")
}

// lines describes each cluster that has something, or that cannot be read. IDs of setups are named as long as the ID of
// this one is not known.
func (t *tenants) lines() (out []string) {
	for _, c := range t.clusters {
		if c.err != nil {
			out = append(out, fmt.Sprintf("cluster %s: cannot be read, so what runs there is not known: %s", c.Name,
				firstLine(c.err.Error())))
			continue
		}
		if own := t.own(c); len(own) > 0 {
			out = append(out, fmt.Sprintf("cluster %s: %s", c.Name, t.describe(own)))
		}
		if others := t.others(c); t.id == "" {
			for _, id := range slices.Sorted(maps.Keys(others)) {
				out = append(out, fmt.Sprintf("cluster %s: %s, of the setup with the ID %s", c.Name,
					t.describe(others[id]), id))
			}
		}
	}
	return out
}

// print lists what workspaces run, if there is something, and how to remove it.
func (t *tenants) print(w io.Writer) {
	lines := t.lines()
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "Workloads of workspaces in physical clusters:\n  %s\n", strings.Join(lines, "\n  "))
	id := t.id
	if id == "" {
		id = "ID"
	}
	fmt.Fprintln(w, "They run on. To remove them with their volumes, first end the syncers, then run:")
	for _, c := range t.clusters {
		if c.err != nil || len(t.own(c)) > 0 || t.id == "" && len(c.all) > 0 {
			fmt.Fprintf(w, "  kubectl%s delete namespaces -l %s=%s\n", c.kubectlFlags(), api.LabelSetup, id)
		}
	}
}

// kubectlFlags are the flags with which kubectl reaches the cluster.
func (c *tenantCluster) kubectlFlags() (out string) {
	w := c.Physical.WorkloadCluster
	if w.Kubeconfig != "" {
		out += " --kubeconfig " + w.Kubeconfig
	}
	if w.Context != "" {
		out += " --context " + w.Context
	}
	return out
}

// Left returns what is still in the clusters.
func (t *tenants) Left(ctx context.Context) (out []string) {
	t.look(ctx)
	for _, c := range t.clusters {
		if c.err != nil {
			out = append(out, "what is in cluster "+c.Name+", which cannot be read")
			continue
		}
		switch own := t.own(c); {
		case len(own) > 0:
			out = append(out, fmt.Sprintf("%s in cluster %s (setup ID %s)", t.describe(own), c.Name, t.id))
		case t.id == "" && len(c.all) > 0:
			out = append(out, fmt.Sprintf("%s in cluster %s, of this setup or of others", t.describe(c.all), c.Name))
		}
		if ns, err := c.client.Object(ctx, namespacePlace(api.NamespaceSyncer)); err != nil || ns != nil {
			out = append(out, fmt.Sprintf("namespace %s in cluster %s, which setups share",
				api.NamespaceSyncer, c.Name))
		}
	}
	return out
}
