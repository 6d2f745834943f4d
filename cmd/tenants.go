package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// tenantTime is how long kcp or a physical cluster may take to answer, before a command continues without the answer.
const tenantTime = 15 * time.Second

// tenants are what workspaces run in physical clusters: the namespaces there with the ID of the setup.
type tenants struct {
	setup string
	// id is the ID of the setup in physical clusters. It is empty if it is not known, for the reason unknown.
	id      string
	unknown error
	// paths are the paths of workspaces by their logical clusters, as far as they are known.
	paths    map[string]string
	clusters []*tenantCluster
	// shown are the namespaces that the user has agreed to delete. Nil agrees to all.
	shown map[types.UID]bool
}

// tenantCluster is what was found in a physical cluster.
type tenantCluster struct {
	name string
	// started means that the user starts the syncer, so that down does not stop it.
	started bool
	client  tenantClient
	// all are the namespaces of all setups. err is why they could not be read.
	all []unstructured.Unstructured
	err error
}

// tenantClient is what tenants need of a client for a physical cluster.
type tenantClient interface {
	Object(ctx context.Context, p kcp.Place) (*unstructured.Unstructured, error)
	Objects(ctx context.Context, p kcp.Place, selector string) ([]unstructured.Unstructured, error)
	DeleteObject(ctx context.Context, p kcp.Place, seen *unstructured.Unstructured) error
}

func namespacePlace(name string) kcp.Place {
	return kcp.Place{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Name: name}
}

// tenants reads what workspaces run in some physical clusters. Neither a cluster that cannot be read nor a kcp that
// does not answer fails it.
func (s *session) tenants(ctx context.Context, of ...*topology.Component) *tenants {
	t := s.findTenants(ctx, of...)
	t.unknown = s.ask(ctx, t)
	return t
}

// findTenants reads the namespaces of all setups in some physical clusters, without kcp.
func (s *session) findTenants(ctx context.Context, of ...*topology.Component) *tenants {
	t := &tenants{setup: s.topology.Name}
	for _, c := range of {
		w := c.Physical.WorkloadCluster
		cl := &tenantCluster{name: c.Name, started: w.SyncMode == v1alpha1.SyncModeNone}
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

// ask requests the ID of the setup and the paths of the workspaces from kcp. If kcp does not answer, the record of the
// installation has the ID.
func (s *session) ask(ctx context.Context, t *tenants) error {
	recorded := ""
	if known, err := s.runtime.Record(ctx); err == nil {
		recorded = known.WorkloadsID
	}
	err := s.askKcp(ctx, t, recorded)
	if err == nil || recorded == "" || clierr.Code(err) == clierr.Conflict {
		return err
	}
	t.id = recorded
	return nil
}

// askKcp is ask without the record.
func (s *session) askKcp(ctx context.Context, t *tenants, recorded string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tenantTime, fmt.Errorf("no answer after %s", tenantTime))
	defer cancel()
	state, err := s.loadPKI(ctx)
	if err != nil {
		return err
	}
	client, err := run.ConnectFrontProxy(s.runtime, s.topology, nil, state, s.env.Now())
	if err != nil {
		return err
	}
	defer client.Close()
	c := &compute{computeClient: client, workspace: s.file.Setup.Spec.Workloads.Workspace, state: state,
		recorded: recorded}
	if t.id, err = c.setupID(ctx); err != nil {
		return err
	}
	t.paths = c.paths(ctx, t.workspaces())
	return nil
}

// setupID returns the ID of the setup in physical clusters: the one that the controller has noted on the Clusters, the
// recorded one, or the logical cluster of the compute workspace.
func (c *compute) setupID(ctx context.Context) (string, error) {
	all, err := c.clusters(ctx)
	if err != nil {
		return "", err
	}
	ids := map[string]bool{}
	for _, cl := range all {
		if id := cmp.Or(cl.Annotations[api.AnnotationSetup], c.recorded, cl.Annotations[kcpapi.AnnotationCluster]); id != "" {
			ids[id] = true
		}
	}
	if len(ids) > 1 {
		return "", clierr.New(clierr.Conflict, "correct the annotation "+api.AnnotationSetup,
			"the Clusters in %s have different IDs of the setup: %s", c.workspace,
			strings.Join(slices.Sorted(maps.Keys(ids)), ", "))
	}
	for id := range ids {
		return id, nil
	}
	if c.recorded != "" {
		return c.recorded, nil
	}
	o, err := c.Object(ctx, c.placeOf(kcpapi.LogicalCluster, "cluster"))
	if err != nil || o == nil || o.GetAnnotations()[kcpapi.AnnotationCluster] == "" {
		return "", clierr.New(clierr.Failed, "see kcpctl status", "read LogicalCluster cluster in %s: %w", c.workspace,
			cmp.Or(err, errNoObject))
	}
	return o.GetAnnotations()[kcpapi.AnnotationCluster], nil
}

// errNoObject means that an object, or a part of it, does not exist.
var errNoObject = errors.New("it does not exist, or has no ID")

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

// workspaces returns the logical clusters with namespaces of the setup.
func (t *tenants) workspaces() []string {
	out := map[string]bool{}
	for _, c := range t.clusters {
		for _, ns := range t.own(c) {
			out[ns.GetLabels()[api.LabelWorkspace]] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// count returns how many namespaces of the setup were found, and the clusters that have some.
func (t *tenants) count() (namespaces int, clusters []string) {
	for _, c := range t.clusters {
		if own := t.own(c); len(own) > 0 {
			namespaces += len(own)
			clusters = append(clusters, c.name)
		}
	}
	return namespaces, clusters
}

// found reports whether clusters have namespaces with an ID, or could not be read.
func (t *tenants) found(id string) bool {
	has := func(ns unstructured.Unstructured) bool { return ns.GetLabels()[api.LabelSetup] == id }
	return slices.ContainsFunc(t.clusters,
		func(c *tenantCluster) bool { return c.err != nil || slices.ContainsFunc(c.all, has) })
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
			out = append(out, fmt.Sprintf("cluster %s: cannot be read, so what runs there is not known: %s", c.name,
				firstLine(c.err.Error())))
			continue
		}
		if own := t.own(c); len(own) > 0 {
			out = append(out, fmt.Sprintf("cluster %s: %s", c.name, t.describe(own)))
		}
		if others := t.others(c); t.id == "" {
			for _, id := range slices.Sorted(maps.Keys(others)) {
				out = append(out, fmt.Sprintf("cluster %s: %s, of the setup with the ID %s", c.name,
					t.describe(others[id]), id))
			}
		}
	}
	return out
}

// print lists what workspaces run, if there is something, and what becomes of it.
func (t *tenants) print(w io.Writer, purge bool, command string) {
	lines := t.lines()
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "Workloads of workspaces in physical clusters:\n  %s\n", strings.Join(lines, "\n  "))
	id := t.id
	if id == "" {
		fmt.Fprintf(w, "Which are those of kcp %q is not known: %s\n", t.setup, firstLine(t.unknown.Error()))
		id = "ID"
	}
	if !purge {
		fmt.Fprintf(w, "What runs there stays, and runs on. To remove it with its volumes, run:\n  %s\n", command)
		fmt.Fprintf(w, "If kcp does not answer, add --setup-id %s\n", id)
		return
	}
	for _, c := range t.clusters {
		if c.started && len(t.own(c)) > 0 {
			fmt.Fprintf(w, "Stop the syncer of cluster %s first: kcpctl has not started it, and it makes the "+
				"namespaces again.\n", c.name)
		}
	}
}
