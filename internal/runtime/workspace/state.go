package workspace

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// state returns the state of a workspace.
func (s *objects) state(ctx context.Context, c *topology.Component) (ready.State, error) {
	ws := c.Workspace
	live, err := s.client.Object(ctx,
		plan.Ref{Workspace: ws.Parent, GroupVersionKind: kcpapi.Workspace.GroupVersionKind, Name: ws.Name})
	switch {
	case err != nil:
		return ready.State{Reason: fmt.Sprintf("read workspace %s: %v", ws.Path, err)}, nil
	case live == nil:
		return ready.State{Reason: "does not exist"}, nil
	}
	if err := kcp.WorkspaceReady(live); err != nil {
		return ready.State{Reason: err.Error()}, nil
	}
	for _, b := range ws.Bindings {
		ref := plan.Ref{Workspace: ws.Path, GroupVersionKind: kcpapi.APIBinding.GroupVersionKind, Name: b.Name}
		bound, err := s.client.Object(ctx, ref)
		switch {
		case err != nil:
			return ready.State{Reason: fmt.Sprintf("read %s: %v", ref, err)}, nil
		case bound == nil:
			return ready.State{Reason: ref.String() + " does not exist"}, nil
		}
		if err := kcp.BindingReady(bound); err != nil {
			return ready.State{Reason: fmt.Sprintf("%s: %v", ref, err)}, nil
		}
	}
	return ready.State{Ready: true, Reason: onShard(s.shardOf(live))}, nil
}

// onShard tells where a workspace is.
func onShard(shard string) string {
	if shard == "" {
		return ""
	}
	return "on shard " + shard
}

// State returns the state of a component: a workspace is ready if it is Ready and its APIs are bound, a physical
// cluster if its Cluster object is Ready.
func (r *Runtime) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	below := ready.State{}
	if c.Runs() || !c.Kind.Tenant() {
		var err error
		if below, err = r.Runtime.State(ctx, c); err != nil || !below.Ready || c.ComputeWorkspace() == "" {
			return below, err
		}
	}
	if c.Kind == topology.Monitoring {
		return ready.State{Ready: true}, nil // only objects, which nothing has to make ready
	}
	s, err := r.connect(ctx)
	if err != nil {
		return ready.State{Reason: err.Error()}, nil
	}
	switch c.Kind {
	case topology.Workloads:
		return s.controller(ctx, c, below), nil
	case topology.Physical:
		st := s.cluster(ctx, c)
		below.Ready = st.Ready
		below.Reason = st.Reason
		return below, nil
	}
	return s.state(ctx, c)
}
