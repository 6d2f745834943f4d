package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// placeTime is how long the controller may take to schedule an object.
const placeTime = time.Minute

// eachShard asks all shards that have workspaces which use the published APIs.
func (c *compute) eachShard(ctx context.Context,
	ask func(ctx context.Context, at *kcp.Client, path string) outcome) (o outcome) {
	slice, err := c.object(ctx, kcpapi.APIExportEndpointSlice.GroupVersionKind, api.ExportWorkloads)
	switch {
	case err != nil:
		return fromError(err)
	case slice == nil:
		o.fail("APIExportEndpointSlice %s in %s does not exist", api.ExportWorkloads, c.Workspace)
		return o
	}
	return every(agentstate.EndpointsOf(slice, c.Topology), func(e agentstate.Endpoint) (o outcome) {
		if e.Shard == nil {
			o.fail("%s belongs to no shard of the setup", e.URL)
			return o
		}
		server := c.Topology.WorkspaceServer(e.Shard)
		if c.lost(server.Cluster.Name) || !c.serves(server.ID()) {
			return skipped("%s is not ready", e.Shard.ID())
		}
		at, err := c.client(server)
		if err != nil {
			o.add(err)
			return o
		}
		o.absorb(string(e.Shard.ID()), ask(ctx, at, e.URL.Path))
		return o
	})
}

// placed looks for objects that should run in a cluster and have no leaf, and for leaves without a root or a cluster.
func placed(ctx context.Context, c *compute) outcome {
	return c.eachShard(ctx, func(ctx context.Context, at *kcp.Client, path string) (o outcome) {
		own := agentstate.Resources(c.export)
		for _, gr := range slices.Concat(own, dependencies()) {
			all := &family{gr: gr, roots: map[string]root{}, leaves: map[string][]leaf{}}
			err := at.EachExported(ctx, path, gr, all.see)
			if err != nil && !(errors.Is(err, kcp.ErrNotServed) && !slices.Contains(own, gr)) {
				o.fail("%s", reason(ctx, err))
				continue
			}
			all.report(&o, c)
		}
		return o
	})
}

func dependencies() (out []schema.GroupResource) {
	for _, r := range api.Dependencies() {
		out = append(out, r.GroupResource())
	}
	return out
}

// family are the objects of a resource, by their roots.
type family struct {
	gr     schema.GroupResource
	roots  map[string]root
	leaves map[string][]leaf
}

// root is an object of a user, and leaf one that the controller has made of it.
type root struct {
	// why is the reason if it is not scheduled. needsLeaf is false if it need not be.
	why       string
	needsLeaf bool
	created   time.Time
}

type leaf struct{ name, cluster string }

// see adds an object.
func (f *family) see(_ schema.GroupVersionResource, u *unstructured.Unstructured) {
	if u.GetDeletionTimestamp() != nil {
		return
	}
	where := func(name string) string {
		return fmt.Sprintf("%s %s of the logical cluster %s", f.gr, strings.TrimPrefix(u.GetNamespace()+"/"+name, "/"),
			u.GetAnnotations()[kcpapi.AnnotationCluster])
	}
	if splitter.IsRoot(u) {
		replicas, divided, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		f.roots[where(u.GetName())] = root{
			why: unscheduled(u), needsLeaf: !splitter.Follows(f.gr, u) && (!divided || replicas > 0),
			created: u.GetCreationTimestamp().Time,
		}
		return
	}
	if name := u.GetAnnotations()[api.AnnotationName]; name != "" &&
		len(u.GetOwnerReferences()) > 0 { // others are those of users
		key := where(name)
		f.leaves[key] = append(f.leaves[key], leaf{where(u.GetName()), u.GetLabels()[api.LabelCluster]})
	}
}

// unscheduled returns why the controller does not schedule an object.
func unscheduled(u *unstructured.Unstructured) string {
	if c := api.ConditionIn(u, api.ConditionScheduled); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason + ": " + c.Message
	}
	return cmp.Or(u.GetAnnotations()[api.AnnotationScheduleError], "the controller has not scheduled it")
}

// report adds what is wrong.
func (f *family) report(o *outcome, c *compute) {
	for key, r := range f.roots {
		if r.needsLeaf && len(f.leaves[key]) == 0 && c.Now().Sub(r.created) > placeTime {
			o.fail("%s is in no cluster: %s", key, r.why)
		}
	}
	for key, leaves := range f.leaves {
		for _, l := range leaves {
			_, has := f.roots[key]
			switch {
			case !has:
				o.fail("%s has lost its root %s", l.name, key)
			case !c.has(l.cluster):
				o.fail("%s has the cluster %s, which does not exist", l.name, l.cluster)
			}
		}
	}
	slices.Sort(o.causes)
}

// has reports whether there is a Cluster with a name.
func (c *compute) has(name string) bool {
	return slices.ContainsFunc(c.clusters, func(cl *api.Cluster) bool { return cl.Name == name })
}

// bound looks for workspaces in which the syncers do not see the objects of their clusters.
func bound(ctx context.Context, c *compute) outcome {
	return c.eachShard(ctx, func(ctx context.Context, at *kcp.Client, path string) (o outcome) {
		applied := map[string]map[string]bool{} // by workspace and APIExport
		err := at.EachExported(ctx, path, kcpapi.APIBinding.GVR().GroupResource(),
			func(_ schema.GroupVersionResource, b *unstructured.Unstructured) {
				export, _, _ := unstructured.NestedString(b.Object, "spec", "reference", "export", "name")
				from, _, _ := unstructured.NestedString(b.Object, "spec", "reference", "export", "path")
				workspace := b.GetAnnotations()[kcpapi.AnnotationCluster]
				if from != c.Workspace {
					return
				}
				if applied[workspace] == nil {
					applied[workspace] = map[string]bool{}
				}
				applied[workspace][export] = api.ClaimsApplied(b)
			})
		if err != nil {
			o.fail("%s", reason(ctx, err))
		}
		for workspace, has := range applied {
			if _, consumer := has[api.ExportWorkloads]; !consumer {
				continue
			}
			for _, cl := range c.clusters {
				switch ok, exists := has[api.ExportCluster(cl.Name)]; {
				case !exists:
					o.fail("the logical cluster %s has no APIBinding of the APIExport %s", workspace,
						api.ExportCluster(cl.Name))
				case !ok:
					o.fail("the logical cluster %s has not applied the claims of the APIExport %s", workspace,
						api.ExportCluster(cl.Name))
				}
			}
		}
		slices.Sort(o.causes)
		return o
	})
}

// syncerMayWrite compares the ClusterRoles of the syncers with the published APIs.
func syncerMayWrite(ctx context.Context, c *compute) outcome {
	clusters := c.Topology.OfKind(topology.Physical)
	if len(clusters) == 0 {
		return skipped("the setup has no physical clusters")
	}
	return every(clusters, func(p *topology.Component) (o outcome) {
		missing, err := c.lacks(ctx, p)
		switch {
		case err != nil:
			return skipped("%s: %s", p.ID(), reason(ctx, err)) // KCP152 fails then
		case len(missing) > 0:
			o.fail("%s: ClusterRole %s does not grant %s", p.ID(), p.SyncerRole(), list(missing))
		}
		return o
	})
}
