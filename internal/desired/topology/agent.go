package topology

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Publishing is what an agent publishes, and where.
type Publishing struct {
	v1alpha1.Agent
	// ServicePlace is where the APIs are that an agent on this machine publishes: the path of a workspace, or
	// OnServiceCluster. Empty: the agent publishes the APIs of the cluster on which it runs.
	ServicePlace string
	// serviceNamespace is the namespace of the agent in ServicePlace.
	serviceNamespace string
}

// ServiceWorkspace returns the path of the workspace that takes the place of the agent's cluster, if one does.
func (p *Publishing) ServiceWorkspace() string {
	if IsKubernetes(p.ServicePlace) {
		return ""
	}
	return p.ServicePlace
}

const (
	// AgentMetricsPort is the port at which an agent serves its metrics. Its health address answers no probes: none are
	// registered (api-syncagent: cmd/api-syncagent/main.go).
	AgentMetricsPort = 8085
	// LabelAgent selects the PublishedResources of an agent. Its value is AgentName.
	LabelAgent = "kcpctl.dev/agent"
)

// AgentName returns the name that an agent of a setup has in its cluster and in kcp: the name of its lease, and the
// value of the annotation syncagent.kcp.io/agent-name (api-syncagent: --agent-name). It never changes.
func AgentName(setup, name string) string { return setup + "-" + name }

// AgentsPlace is the name of the place of agents that are added without one.
const AgentsPlace = "agents"

// AgentsNamespace returns the namespace of that place.
func AgentsNamespace(setup string) string { return setup + "-" + AgentsPlace }

// AgentUser returns the common name of the certificate with which an agent authenticates to kcp.
func AgentUser(setup, name string) string { return "kcpctl:agent:" + setup + ":" + name }

// agent adds an agent. On this machine it publishes the APIs of the workspace that takes the place of its cluster.
func (b *builder) agent(a *v1alpha1.Agent) {
	c := &Component{
		Kind: Agent, Name: a.Name, Setup: b.t.Name, Cluster: b.cluster(a.Cluster),
		Version: a.Version, Image: ImageRef(a.Image, a.Version), PullPolicy: a.Image.PullPolicy,
		PullSecrets: a.Image.PullSecrets,
		Replicas:    *a.Replicas, Resources: *a.Resources, ExtraArgs: a.ExtraArgs,
		ServerSettings: v1alpha1.ServerSettings{LogLevel: a.LogLevel},
		PodTemplates:   overlays(a.PodTemplate), Agent: &Publishing{Agent: *a},
	}
	c.Needs = []ID{IDOf(Base, c.Cluster.Name)}
	for _, w := range b.t.that(func(k Kind) bool { return k == Workspace }) {
		switch {
		case AgentUses(a, w.Name):
			c.Needs = append(c.Needs, w.ID())
		case BindsAgent(w.Workspace.Workspace, a):
			w.Needs = append(w.Needs, c.ID()) // the APIExport has nothing to bind until the agent has published
		}
	}
	b.locate(c, AgentMetricsPort, "")
	c.URL = ""
	if c.Cluster.Local {
		i := slices.IndexFunc(b.setup.Spec.Clusters, func(cl v1alpha1.Cluster) bool { return cl.Name == a.Cluster })
		c.Agent.serve(&b.setup.Spec.Clusters[i])
	}
	if a.Paused {
		c.Replicas = 0
	}
	b.add(c)
}

// serve sets where the APIs are that an agent on this machine publishes. A cluster must be named by its context or its
// kubeconfig: the current context is not meant by a setup that runs without Kubernetes.
func (p *Publishing) serve(c *v1alpha1.Cluster) {
	switch {
	case c.Workspace != "":
		p.ServicePlace = c.Workspace
		p.serviceNamespace = WorkspaceNamespace
	case c.Context != "" || c.Kubeconfig != "":
		p.ServicePlace, p.serviceNamespace = OnServiceCluster(c.Name), c.Namespace
	}
}

// AgentUses reports whether the APIExport of an agent, or a consumer that it binds, is in a workspace or in one below
// it.
func AgentUses(a *v1alpha1.Agent, workspace string) bool {
	return slices.ContainsFunc(append([]string{a.Workspace}, a.Bind...), func(path string) bool {
		return path == workspace || strings.HasPrefix(path, workspace+":")
	})
}

// BindsAgent reports whether a workspace of the setup binds the APIExport of an agent.
func BindsAgent(w v1alpha1.Workspace, a *v1alpha1.Agent) bool {
	return slices.ContainsFunc(w.Bindings,
		func(b v1alpha1.WorkspaceBinding) bool { return b.Export == a.Workspace+":"+a.APIExport })
}

// WorkspaceNamespace is the namespace of an agent in the workspace that takes the place of its cluster. Workspaces have
// it.
const WorkspaceNamespace = "default"

// AgentLeasePrefix is before the name of an agent in the name of its Lease (api-syncagent: cmd/api-syncagent/main.go).
const AgentLeasePrefix = "syncagent."

// AgentLease returns the name of the Lease of an agent.
func AgentLease(setup, name string) string { return AgentLeasePrefix + AgentName(setup, name) }

// ClusterCredential is the credential of a component on this machine for a Kubernetes cluster.
type ClusterCredential struct {
	// Part is the last part of the name of its Secret, Kubeconfig the name of the kubeconfig (see Files), and Place the
	// name of the cluster.
	Part, Kubeconfig, Place string
}

// ClusterCredential returns the credential of c for a Kubernetes cluster. It is nil for components that run on their
// cluster, or use none.
func (c *Component) ClusterCredential() *ClusterCredential {
	switch {
	case c.Agent != nil && IsKubernetes(c.Agent.ServicePlace):
		return &ClusterCredential{ServicePart, KubeconfigService, c.Agent.ServicePlace}
	case c.Pulls() && c.Cluster.Local:
		return &ClusterCredential{TokenPart, KubeconfigPhysical, OnPhysical(c.Name)}
	}
	return nil
}

// ServiceNamespace returns the namespace in which an agent keeps its lease and its state.
func (c *Component) ServiceNamespace() string {
	if c.Agent != nil && c.Agent.ServicePlace != "" {
		return c.Agent.serviceNamespace
	}
	return c.Cluster.Namespace
}

// ClusterRole returns the name of the ClusterRole of c on its cluster, and of its binding. Setups in other namespaces
// of the cluster can have the same names.
func (c *Component) ClusterRole() string {
	return "kcpctl:" + c.ServiceNamespace() + ":" + c.Object()
}

// WorkspaceRole returns the name of the ClusterRole of c in a workspace, and of its binding.
func (c *Component) WorkspaceRole() string {
	if c.Agent != nil {
		return "kcpctl:agent:" + AgentName(c.Setup, c.Name)
	}
	return c.User()
}

// CutWorkspace divides the path of a workspace into the path of its parent and its name. It returns false for the root
// workspace.
func CutWorkspace(path string) (parent, name string, ok bool) {
	i := strings.LastIndex(path, ":")
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// workspaceURL returns the URL of a workspace on a kcp server.
func workspaceURL(server, path string) string {
	return strings.TrimSuffix(server, "/") + "/clusters/" + path
}
