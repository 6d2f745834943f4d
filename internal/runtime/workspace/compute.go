package workspace

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// controller returns the state of the controller of transparent multi-cluster: its processes are ready, and one of them
// holds the Lease.
func (s *objects) controller(ctx context.Context, c *topology.Component, processes ready.State) ready.State {
	if c.Replicas == 0 {
		return processes
	}
	lease, err := s.client.Object(ctx, plan.Ref{
		Workspace: c.Workloads.Workspace, GroupVersionKind: kind.Lease.GroupVersionKind,
		Namespace: api.NamespaceLeases, Name: topology.ControllerLease,
	})
	holder := ""
	if lease != nil {
		holder, _, _ = unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	}
	switch {
	case err != nil:
		processes.Ready, processes.Reason = false, fmt.Sprintf("read Lease %s in %s: %v", topology.ControllerLease,
			c.Workloads.Workspace, err)
	case holder == "":
		processes.Ready, processes.Reason = false, fmt.Sprintf("no replica holds Lease %s in %s yet",
			topology.ControllerLease, c.Workloads.Workspace)
	}
	return processes
}

// cluster returns the state of a physical cluster: its Cluster object is Ready, and its APIs are published. A cluster
// whose syncer the user starts counts as ready before that.
func (s *objects) cluster(ctx context.Context, c *topology.Component) ready.State {
	compute := c.Physical.Workloads.Workspace
	live, err := s.client.Object(ctx, plan.Ref{Workspace: compute, GroupVersionKind: api.ClusterGVK(), Name: c.Name})
	switch {
	case err != nil:
		return ready.State{Reason: fmt.Sprintf("read Cluster %s in %s: %v", c.Name, compute, err)}
	case live == nil:
		return ready.State{Reason: fmt.Sprintf("Cluster %s in %s does not exist", c.Name, compute)}
	}
	cl, err := api.ClusterOf(live)
	if err != nil {
		return ready.State{Reason: err.Error()}
	}
	condition := meta.FindStatusCondition(cl.Status.Conditions, api.ConditionReady)
	ok := condition != nil && condition.Status == metav1.ConditionTrue
	switch {
	case !ok && c.Physical.SyncMode == v1alpha1.SyncModeNone:
		return ready.State{Ready: true, Reason: "start its syncer: kcpctl syncer --cluster-name " + c.Name}
	case condition == nil:
		return ready.State{Reason: "the controller has not seen the cluster yet"}
	case !ok:
		return ready.State{Reason: condition.Reason + ": " + condition.Message}
	}
	return s.served(ctx, c, cl)
}

// served returns the state of a cluster that is Ready: whether workspaces can use its APIs.
func (s *objects) served(ctx context.Context, c *topology.Component, cl *api.Cluster) ready.State {
	w := c.Physical.Workloads
	count := 0
	for _, a := range cl.Status.APIs {
		if a.State.Serves() {
			count++
		}
	}
	if count == 0 {
		reason := "none of its APIs is published yet"
		if c := meta.FindStatusCondition(cl.Status.Conditions, api.ConditionAPIsCompatible); c != nil &&
			c.Status != metav1.ConditionTrue {
			reason += ": " + c.Message
		}
		return ready.State{Reason: reason}
	}
	workspaceType, err := s.client.Object(ctx, plan.Ref{Workspace: w.Workspace,
		GroupVersionKind: kcpapi.WorkspaceType.GroupVersionKind, Name: w.WorkspaceType})
	switch {
	case err != nil:
		return ready.State{Reason: fmt.Sprintf("read WorkspaceType %s in %s: %v", w.WorkspaceType, w.Workspace, err)}
	case workspaceType == nil:
		return ready.State{Reason: fmt.Sprintf("WorkspaceType %s in %s does not exist yet",
			w.WorkspaceType, w.Workspace)}
	}
	return ready.State{Ready: true,
		Reason: fmt.Sprintf("%s, serves %d of %d APIs", cl.Status.Version, count, len(w.APIs))}
}

// forWorkloads reports whether an object is a workspace of the type that the controller creates.
func (s *objects) forWorkloads(o *unstructured.Unstructured) bool {
	w := s.topology.Setup.Spec.Workloads
	if w == nil || o == nil || o.GroupVersionKind().GroupKind() != kcpapi.Workspace.GroupKind() {
		return false
	}
	path, _, _ := unstructured.NestedString(o.Object, "spec", "type", "path")
	name, _, _ := unstructured.NestedString(o.Object, "spec", "type", "name")
	return path == w.Workspace && name == w.WorkspaceType
}
