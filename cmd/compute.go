package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// computeClient has the methods of a client for kcp that the commands for clusters and workloads need.
type computeClient interface {
	Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error)
	Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error)
	ApplyObject(ctx context.Context, p plan.Ref, o *unstructured.Unstructured,
		dryRun, force bool) (*unstructured.Unstructured, error)
	PatchObject(ctx context.Context, p plan.Ref, patch map[string]any) (*unstructured.Unstructured, error)
	Resources(ctx context.Context, workspace string, gv schema.GroupVersion) ([]metav1.APIResource, error)
}

// compute is the compute workspace of a setup that runs.
type compute struct {
	computeClient
	session *session
	// workspace is its path.
	workspace string
	state     *pki.State
}

// physicalClusters are the physical clusters of the setup.
func physicalClusters(s *session) []v1alpha1.WorkloadCluster {
	if w := s.file.Setup.Spec.Workloads; w != nil {
		return w.Clusters
	}
	return nil
}

// physicalNames are the names of the physical clusters.
func physicalNames(s *session) []string {
	return mapped(physicalClusters(s), func(c v1alpha1.WorkloadCluster) string { return c.Name })
}

// openedCompute returns the function of a command that works on the compute workspace of a setup that runs.
func openedCompute(env *Env, flags *setupFlags,
	run func(context.Context, *compute) error) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := openCompute(ctx, env, flags)
		if err != nil {
			return err
		}
		defer c.session.close()
		return run(ctx, c)
	}
}

// openCompute loads a setup and connects to its compute workspace. The caller closes the session.
func openCompute(ctx context.Context, env *Env, flags *setupFlags) (*compute, error) {
	s, err := loadSetup(env, flags)
	if err != nil {
		return nil, err
	}
	if s.file.Setup.Spec.Workloads == nil {
		return nil, clierr.New(clierr.BadInput, "add a cluster with kcpctl cluster add",
			"%s has no spec.workloads", s.file.Name)
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	c, err := s.compute(ctx)
	if err != nil {
		s.close()
		return nil, err
	}
	return c, nil
}

// compute connects to the compute workspace of a setup with workloads, through a front-proxy. The session is connected.
func (s *session) compute(ctx context.Context) (*compute, error) {
	lost := s.runtime.Unreachable(ctx)
	s.runtime.LeaveOut(lost)
	state, err := s.loadPKI(ctx)
	if err != nil {
		return nil, err
	}
	client, err := run.ConnectFrontProxy(s.runtime, s.topology, lost, state, s.env.Now())
	if err != nil {
		return nil, err
	}
	return &compute{client, s, s.file.Setup.Spec.Workloads.Workspace, state}, nil
}

// place is where a Cluster is.
func (c *compute) place(name string) plan.Ref {
	return plan.Ref{Workspace: c.workspace, GroupVersionKind: api.ClusterGVK(), Name: name}
}

// clusters returns all Clusters, sorted by name.
func (c *compute) clusters(ctx context.Context) ([]*api.Cluster, error) {
	all, err := c.Objects(ctx, c.place(""), "")
	if err != nil {
		return nil, clierr.New(clierr.Failed, "see kcpctl status", "%w", err)
	}
	var out []*api.Cluster
	for i := range all {
		cl, err := api.ClusterOf(&all[i])
		if err != nil {
			return nil, err
		}
		out = append(out, cl)
	}
	slices.SortFunc(out, func(a, b *api.Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// cluster returns a Cluster, or nil if it does not exist.
func (c *compute) cluster(ctx context.Context, name string) (*api.Cluster, error) {
	o, err := c.Object(ctx, c.place(name))
	if err != nil {
		return nil, clierr.New(clierr.Failed, "see kcpctl status", "read Cluster %s in %s: %w", name, c.workspace, err)
	}
	if o == nil {
		return nil, nil
	}
	return api.ClusterOf(o)
}

// patch changes a Cluster.
func (c *compute) patch(ctx context.Context, name string, patch map[string]any) error {
	if _, err := c.PatchObject(ctx, c.place(name), patch); err != nil {
		return fmt.Errorf("change Cluster %s in %s: %w", name, c.workspace, err)
	}
	return nil
}
