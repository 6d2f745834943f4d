package topology

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

const (
	// ControllerName is the name of the controller of transparent multi-cluster. Its ID is workloads/controller.
	ControllerName = "controller"
	// ControllerLease is the Lease, in the compute workspace, that the working replica of the controller holds.
	ControllerLease = "kcpctl-workloads"
	// controllerPort is the port at which the controller serves probes.
	controllerPort = 8081
)

// PhysicalCluster is a cluster of spec.workloads.
type PhysicalCluster struct {
	v1alpha1.WorkloadCluster
	// Workloads are the settings that all clusters share.
	Workloads *v1alpha1.Workloads
}

// ControllerUser returns the common name of the certificate with which the controller authenticates to kcp.
func ControllerUser(setup string) string { return "kcpctl:controller:" + setup }

// SyncerUser returns the common name of the certificate with which the syncer of a cluster authenticates to kcp. It is also the name of its
// ClusterRole in the cluster.
func SyncerUser(setup, cluster string) string { return "kcpctl:syncer:" + setup + ":" + cluster }

// User returns the common name of the certificate with which c uses kcp as a user does. It is empty for components that do not.
func (c *Component) User() string {
	switch {
	case c.Agent != nil:
		return AgentUser(c.Setup, c.Name)
	case c.Kind == Workloads:
		return ControllerUser(c.Setup)
	case c.Kind == Physical:
		return SyncerUser(c.Setup, c.Name)
	}
	return ""
}

// OnPhysical returns the place of objects on a cluster of spec.workloads, where others have the path of a workspace: the ID of the
// component. Paths of workspaces have no slash.
func OnPhysical(cluster string) string { return string(IDOf(Physical, cluster)) }

// IsPhysical returns the name of a cluster of spec.workloads, if a place is one and not a workspace.
func IsPhysical(place string) (cluster string, ok bool) {
	return strings.CutPrefix(place, string(Physical)+"/")
}

// Within reports whether the path of a workspace is another one, or below it.
func Within(path, other string) bool { return path == other || strings.HasPrefix(path, other+":") }

// workloads adds the controller of transparent multi-cluster and the physical clusters.
func (b *builder) workloads() {
	w := b.setup.Spec.Workloads
	if w == nil {
		return
	}
	c := &Component{
		Kind: Workloads, Name: ControllerName, Setup: b.t.Name, Cluster: b.cluster(w.Cluster), Version: b.setup.Spec.Version,
		Image: imageRef(w.Image, ""), PullPolicy: w.Image.PullPolicy, PullSecrets: w.Image.PullSecrets,
		Replicas: *w.Replicas, Resources: *w.Resources, LogLevel: *w.LogLevel, ExtraArgs: w.ExtraArgs,
		PodTemplates: overlays(w.PodTemplate), Workloads: w,
	}
	c.Needs = []ID{IDOf(Base, c.Cluster.Name)}
	for _, ws := range b.t.OfKind(Workspace) {
		if Within(w.Workspace, ws.Name) {
			c.Needs = append(c.Needs, ws.ID())
		}
	}
	b.locate(c, controllerPort, "")
	c.URL = ""
	b.add(c)
	var push []ID
	for i := range w.Clusters {
		p := &Component{
			Kind: Physical, Name: w.Clusters[i].Name, Setup: b.t.Name, Cluster: b.t.Home,
			Needs: []ID{IDOf(Base, b.t.Home.Name), c.ID()}, Physical: &PhysicalCluster{w.Clusters[i], w},
		}
		b.add(p)
		if p.Physical.SyncMode == v1alpha1.SyncModePush {
			push = append(push, p.ID())
		}
	}
	b.afterWorkloads(w.Workspace+":"+w.WorkspaceType, append([]ID{c.ID()}, push...))
}

// afterWorkloads makes the workspaces of a type come after the controller that creates the type, and after the clusters whose APIs they
// can use.
func (b *builder) afterWorkloads(workspaceType string, needs []ID) {
	var before, after []*Component
	later := map[ID]bool{}
	for _, c := range b.t.Components {
		inLater := slices.ContainsFunc(c.Needs, func(id ID) bool { return later[id] })
		ofType := c.Workspace != nil && c.Workspace.Type == workspaceType
		if ofType {
			c.Needs = append(c.Needs, needs...)
		}
		if ofType || inLater {
			later[c.ID()] = true
			after = append(after, c)
			continue
		}
		before = append(before, c)
	}
	b.t.Components = append(before, after...)
}
