package topology

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

const (
	// ControllerName is the name of the controller of transparent multi-cluster. Its ID is workloads/controller.
	ControllerName = "controller"
	// ControllerLease is the Lease, in the compute workspace, that the working replica of the controller holds.
	ControllerLease = "kcpctl-workloads"
	// probesPort is the port at which the controller and syncers serve probes.
	probesPort = 8081
)

// PhysicalCluster is a cluster of spec.workloads.
type PhysicalCluster struct {
	v1alpha1.WorkloadCluster
	// Workloads are the settings that all clusters share.
	Workloads *v1alpha1.Workloads
}

// ControllerUser returns the common name of the certificate with which the controller authenticates to kcp.
func ControllerUser(setup string) string { return "kcpctl:controller:" + setup }

// SyncerUser returns the common name of the certificate with which the first syncer of a cluster with a name
// authenticates to kcp. It is also the name of the ClusterRole of each syncer in its cluster.
func SyncerUser(setup, cluster string) string { return "kcpctl:syncer:" + setup + ":" + cluster }

// HasUser reports whether components of a kind use kcp as users do.
func (k Kind) HasUser() bool {
	return k == Agent || k == Workloads || k == Physical || k == Monitoring
}

// User returns the common name of the certificate with which c uses kcp as a user does. It is empty for components that
// do not. If a component with its ID was removed before, the PKI has another one (pki.State.User).
func (c *Component) User() string {
	switch {
	case c.Agent != nil:
		return AgentUser(c.Setup, c.Name)
	case c.Kind == Workloads:
		return ControllerUser(c.Setup)
	case c.Kind == Physical:
		return SyncerUser(c.Setup, c.Name)
	case c.Kind == Monitoring:
		return MetricsUser(c.Setup)
	}
	return ""
}

// OnPhysical returns the place of objects on a cluster of spec.workloads, where others have the path of a workspace:
// the ID of the component. Paths of workspaces have no slash.
func OnPhysical(cluster string) string { return string(IDOf(Physical, cluster)) }

// IsPhysical returns the name of a cluster of spec.workloads, if a place is one and not a workspace.
func IsPhysical(place string) (cluster string, ok bool) {
	return strings.CutPrefix(place, string(Physical)+"/")
}

// serviceClusters begins the places of objects on the clusters whose APIs agents on this machine publish.
const serviceClusters = "service-cluster/"

// OnServiceCluster returns the place of objects on a cluster of spec.clusters whose APIs an agent on this machine
// publishes. On this machine the setup itself has no cluster.
func OnServiceCluster(cluster string) string { return serviceClusters + cluster }

// IsServiceCluster returns the name of a cluster of spec.clusters, if a place is OnServiceCluster.
func IsServiceCluster(place string) (cluster string, ok bool) {
	return strings.CutPrefix(place, serviceClusters)
}

// IsKubernetes reports whether a place is on a Kubernetes cluster and not a workspace.
func IsKubernetes(place string) bool { return strings.Contains(place, "/") }

// Within reports whether the path of a workspace is another one, or below it.
func Within(path, other string) bool { return path == other || strings.HasPrefix(path, other+":") }

// workloads adds the controller of transparent multi-cluster and the physical clusters.
func (b *builder) workloads() {
	w := b.setup.Spec.Workloads
	if w == nil {
		return
	}
	c := &Component{
		Kind: Workloads, Name: ControllerName, Setup: b.t.Name, Cluster: b.cluster(w.Cluster),
		Version: b.setup.Spec.Version,
		Image:   KcpctlRef(w.Image), PullPolicy: w.Image.PullPolicy, PullSecrets: w.Image.PullSecrets,
		Replicas: *w.Replicas, Resources: *w.Resources, ExtraArgs: w.ExtraArgs,
		ServerSettings: v1alpha1.ServerSettings{LogLevel: w.LogLevel},
		PodTemplates:   overlays(w.PodTemplate), Workloads: w,
	}
	c.Needs = []ID{IDOf(Base, c.Cluster.Name)}
	for _, ws := range b.t.OfKind(Workspace) {
		if Within(w.Workspace, ws.Name) {
			c.Needs = append(c.Needs, ws.ID())
		}
	}
	b.locate(c, probesPort, "")
	c.URL = ""
	b.add(c)
	for _, cl := range w.Clusters {
		p := b.physical(cl, w)
		p.Needs = append(p.Needs, c.ID())
		b.add(p)
	}
	b.afterWorkloads(w.Workspace+":"+w.WorkspaceType, c.ID())
}

// physical returns a physical cluster. If its syncer runs in it, it is placed there, otherwise with the root shard: it
// is only objects then.
func (b *builder) physical(cl v1alpha1.WorkloadCluster, w *v1alpha1.Workloads) *Component {
	c := &Component{Kind: Physical, Name: cl.Name, Setup: b.t.Name, Cluster: b.t.Home}
	cl.Context, cl.Kubeconfig = ConnectionOf(b.setup.Spec.Clusters, cl)
	c.Physical = &PhysicalCluster{cl, w}
	if c.Pulls() {
		c.Cluster, c.Version = b.cluster(cmp.Or(cl.Cluster, cl.Name)), b.setup.Spec.Version
		c.Image, c.PullPolicy, c.PullSecrets = KcpctlRef(w.Image), w.Image.PullPolicy, w.Image.PullSecrets
		c.Replicas, c.Resources, c.LogLevel, c.PodTemplates = 1, *cl.Resources, w.LogLevel, overlays(cl.PodTemplate)
		b.locate(c, probesPort, "")
		c.URL = ""
	}
	c.Needs = []ID{IDOf(Base, c.Cluster.Name)}
	return c
}

// Pulls reports whether c is a physical cluster with a syncer that connects to kcp. It runs in the cluster, or with
// --local on this machine.
func (c *Component) Pulls() bool {
	return c.Physical != nil && c.Physical.SyncMode == v1alpha1.SyncModePull
}

// SyncerRole returns the name of the ClusterRole of a syncer in its physical cluster, and of its binding. A syncer that
// runs there has another one than those that run elsewhere: its mode can change.
func (c *Component) SyncerRole() string {
	if c.Pulls() && !c.Cluster.Local {
		return c.ClusterRole()
	}
	return c.User()
}

// PodPolicy returns the name of the policy with the rules for pods of workspaces in a physical cluster, and of its
// binding. Several setups can use the cluster.
func (c *Component) PodPolicy() string { return "pods." + c.Name + "." + c.Setup + "." + api.Group }

// ComputeWorkspace returns the path of the compute workspace, for its controller and for physical clusters. Others have
// none.
func (c *Component) ComputeWorkspace() string {
	switch {
	case c.Physical != nil:
		return c.Physical.Workloads.Workspace
	case c.Workloads != nil:
		return c.Workloads.Workspace
	}
	return ""
}

// ConnectionOf returns the kubeconfig context of a physical cluster, and the file that has it.
func ConnectionOf(clusters []v1alpha1.Cluster, c v1alpha1.WorkloadCluster) (context, kubeconfig string) {
	for _, place := range clusters {
		if place.Name == c.Cluster {
			return place.Context, place.Kubeconfig
		}
	}
	return c.Context, c.Kubeconfig
}

// syncerPlaces returns the places of syncers that no cluster in spec.clusters is.
func syncerPlaces(w *v1alpha1.Workloads) []Cluster {
	if w == nil {
		return nil
	}
	var out []Cluster
	for _, c := range w.Clusters {
		if c.SyncMode == v1alpha1.SyncModePull && c.Cluster == "" {
			out = append(out, Cluster{Name: c.Name, Context: c.Context, Kubeconfig: c.Kubeconfig,
				Namespace: api.NamespaceSyncer})
		}
	}
	return out
}

// afterWorkloads makes the workspaces of a type come after the controller that creates the type. They do not need the
// clusters: one that is lost must not block them.
func (b *builder) afterWorkloads(workspaceType string, controller ID) {
	var before, after []*Component
	later := map[ID]bool{}
	for _, c := range b.t.Components {
		inLater := slices.ContainsFunc(c.Needs, func(id ID) bool { return later[id] })
		ofType := c.Workspace != nil && c.Workspace.Type == workspaceType
		if ofType {
			c.Needs = append(c.Needs, controller)
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
