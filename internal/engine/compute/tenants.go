package compute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// tenantTime is how long kcp or a physical cluster may take to answer, before a command continues without the answer.
const tenantTime = 15 * time.Second

// Tenants are what workspaces run in physical clusters: the namespaces there with the ID of the setup.
type Tenants struct {
	// id is the ID of the setup in physical clusters: the one of the installation. It is empty if it is not known.
	id string
	// paths are the paths of workspaces by their logical clusters, as far as they are known.
	paths    map[string]string
	clusters []*tenantCluster
}

// tenantCluster is what was found in a physical cluster.
type tenantCluster struct {
	*topology.Component
	client TenantClient
	// all are the namespaces of all setups. err is why they could not be read.
	all []unstructured.Unstructured
	err error
}

// TenantClient is what Tenants need of a client for a physical cluster.
type TenantClient interface {
	Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error)
	Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error)
}

func namespaceRef(name string) plan.Ref {
	return plan.Ref{GroupVersionKind: kind.Namespace.GroupVersionKind, Name: name}
}

// FindTenants reads the namespaces of all setups in some physical clusters, without kcp. A cluster that cannot be read
// does not fail it. installation is the ID of this one, if it is known.
func FindTenants(
	ctx context.Context, installation string, open func(v1alpha1.WorkloadCluster) (TenantClient, error),
	of ...*topology.Component,
) *Tenants {
	t := &Tenants{id: installation}
	for _, c := range of {
		cl := &tenantCluster{Component: c}
		if client, err := open(c.Physical.WorkloadCluster); err != nil {
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
func (t *Tenants) look(ctx context.Context) {
	parallel.Map(parallel.Limit, t.clusters, func(c *tenantCluster) struct{} {
		if c.client != nil {
			ctx, cancel := answering(ctx)
			defer cancel()
			c.all, c.err = c.client.Objects(ctx, namespaceRef(""), api.LabelSetup)
		}
		return struct{}{}
	})
}

func answering(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, tenantTime, fmt.Errorf("no answer after %s", tenantTime))
}

// ReadPaths reads the paths of the workspaces. They are not known if kcp does not answer.
func (t *Tenants) ReadPaths(ctx context.Context, connect func(context.Context) (*kcp.Client, error)) {
	ctx, cancel := answering(ctx)
	defer cancel()
	names := map[string]bool{}
	for _, c := range t.clusters {
		for _, ns := range c.all {
			names[ns.GetLabels()[api.LabelWorkspace]] = true
		}
	}
	if len(names) == 0 {
		return
	}
	client, err := connect(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	t.paths = Paths(ctx, client, slices.Sorted(maps.Keys(names)))
}

// own returns the namespaces of the setup in a cluster. Namespaces of other setups are never among them.
func (t *Tenants) own(c *tenantCluster) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(c.all), func(ns unstructured.Unstructured) bool {
		return t.id == "" || ns.GetLabels()[api.LabelSetup] != t.id
	})
}

// others returns the namespaces of other setups in a cluster, by ID. All are others if the ID of this one is not known.
func (t *Tenants) others(c *tenantCluster) map[string][]unstructured.Unstructured {
	out := map[string][]unstructured.Unstructured{}
	for _, ns := range c.all {
		if id := ns.GetLabels()[api.LabelSetup]; id != t.id || t.id == "" {
			out[id] = append(out[id], ns)
		}
	}
	return out
}

// describe says how many namespaces there are, and of which workspaces: 3 namespaces of workspaces root:a, root:b.
func (t *Tenants) describe(all []unstructured.Unstructured) string {
	names := map[string]bool{}
	for _, ns := range all {
		name := ns.GetLabels()[api.LabelWorkspace]
		names[cmp.Or(t.paths[name], name)] = true
	}
	namespaces := "namespaces"
	workspaces := "workspaces"
	if len(all) == 1 {
		namespaces = "namespace"
	}
	if len(names) == 1 {
		workspaces = "workspace"
	}
	return fmt.Sprintf("%d %s of %s %s", len(all), namespaces, workspaces,
		gather.Few(slices.Sorted(maps.Keys(names)), gather.Listed, ", "))
}

// Lines describes each cluster that has something, or that cannot be read. IDs of setups are named as long as the ID of
// this one is not known.
func (t *Tenants) Lines() (out []string) {
	for _, c := range t.clusters {
		if c.err != nil {
			out = append(out, fmt.Sprintf("cluster %s: cannot be read, so what runs there is not known: %s", c.Name,
				run.FirstLine(c.err)))
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

// Removals returns the commands that remove it, with its volumes.
func (t *Tenants) Removals() (out []string) {
	for _, c := range t.clusters {
		if c.err != nil || len(t.own(c)) > 0 || t.id == "" && len(c.all) > 0 {
			out = append(out, fmt.Sprintf("kubectl%s delete namespaces -l %s=%s", c.kubectlFlags(), api.LabelSetup,
				cmp.Or(t.id, "ID")))
		}
	}
	return out
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
func (t *Tenants) Left(ctx context.Context) (out []string) {
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
		if ns, err := c.client.Object(ctx, namespaceRef(api.NamespaceSyncer)); err != nil || ns != nil {
			out = append(out, fmt.Sprintf("namespace %s in cluster %s, which setups share",
				api.NamespaceSyncer, c.Name))
		}
	}
	return out
}

// Adoption says, for each cluster that is added to the setup, what becomes of the namespaces that it has already. ours
// reports whether some are of this setup, or may be.
func (t *Tenants) Adoption() (lines []string, ours bool) {
	for _, c := range t.clusters {
		own, others := t.own(c), t.others(c)
		ours = ours || len(own) > 0 || t.id == "" && len(c.all) > 0
		if len(own) > 0 {
			lines = append(lines, fmt.Sprintf("cluster %q already has %s of this setup. Objects of workspaces that still "+
				"have them are adopted. Others are shown as orphans: they remain until a user releases them",
				c.Name, t.describe(own)))
		}
		for _, id := range slices.Sorted(maps.Keys(others)) {
			line := fmt.Sprintf("cluster %q has %s of the setup with the ID %s", c.Name, t.describe(others[id]), id)
			if t.id == "" {
				line += ". Whether it is this one is not known"
			} else {
				line += ", and not of this one. They stay as they are"
			}
			lines = append(lines, line)
		}
	}
	return lines, ours
}
