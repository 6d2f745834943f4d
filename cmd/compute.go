package cmd

import (
	"context"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// computeSession is a setup that runs, with its compute workspace.
type computeSession struct {
	*compute.Workspace
	session *session
}

func physicalClusters(s *session) []v1alpha1.WorkloadCluster {
	if w := s.file.Setup.Spec.Workloads; w != nil {
		return w.Clusters
	}
	return nil
}

func physicalNames(s *session) []string {
	return mapped(physicalClusters(s), func(c v1alpha1.WorkloadCluster) string { return c.Name })
}

// openedCompute returns the function of a command that works on the compute workspace of a setup that runs.
func openedCompute(env *Env, flags *setupFlags,
	run func(context.Context, *computeSession) error) func(context.Context) error {
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
func openCompute(ctx context.Context, env *Env, flags *setupFlags) (*computeSession, error) {
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

// compute connects to the compute workspace of a setup with workloads. The session is connected.
func (s *session) compute(ctx context.Context) (*computeSession, error) {
	lost := s.runtime.Unreachable(ctx)
	s.runtime.LeaveOut(lost)
	state, err := s.loadPKI(ctx)
	if err != nil {
		return nil, err
	}
	w, err := compute.Connect(s.runtime, s.topology, lost, state, s.env.Now)
	return &computeSession{w, s}, err
}

// registered returns a Cluster, which must exist.
func (c *computeSession) registered(ctx context.Context, name string) (*api.Cluster, error) {
	live, err := c.Cluster(ctx, name)
	if err == nil && live == nil {
		err = c.unknown(ctx, name)
	}
	return live, err
}

// unknown is the error for a cluster that is not registered.
func (c *computeSession) unknown(ctx context.Context, name string) error {
	if slices.Contains(physicalNames(c.session), name) {
		return clierr.New(clierr.NotReady, "run "+c.session.flags.command("up")+" first",
			"the cluster %q is not registered yet", name)
	}
	all, err := c.Clusters(ctx)
	if err != nil {
		return err
	}
	return unknownName("cluster", name, mapped(all, func(cl *api.Cluster) string { return cl.Name }))
}

// tenants finds out what workspaces run in physical clusters.
func (s *session) tenants(ctx context.Context, clusters ...*topology.Component) *compute.Tenants {
	installation := ""
	if known, err := s.runtime.Record(ctx); err == nil {
		installation = known.Installation
	}
	t := compute.FindTenants(ctx, installation, func(w v1alpha1.WorkloadCluster) (compute.TenantClient, error) {
		return s.openPhysical(topology.Cluster{Name: w.Name, Context: w.Context, Kubeconfig: w.Kubeconfig}, w.Server)
	}, clusters...)
	t.ReadPaths(ctx, func(ctx context.Context) (*kcp.Client, error) {
		state, err := s.loadPKI(ctx)
		if err != nil {
			return nil, err
		}
		return run.ConnectFrontProxy(s.runtime, s.topology, nil, state, s.env.Now())
	})
	return t
}
