package workspace

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// state returns how far a workspace is.
func (s *objects) state(ctx context.Context, c *topology.Component) (ready.State, error) {
	ws := c.Workspace
	live, err := s.client.Object(ctx, kcp.Place{Workspace: ws.Parent, GroupVersionKind: kcpapi.Workspace.GroupVersionKind, Name: ws.Name})
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
		bound, err := s.client.Object(ctx, placeOf(ref))
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
	return ready.State{Ready: true, Reason: onShard(kcp.WorkspaceShard(live))}, nil
}

// onShard tells where a workspace is.
func onShard(shard string) string {
	if shard == "" {
		return ""
	}
	return "on shard " + shard
}
