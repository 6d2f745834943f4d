package record

import (
	"cmp"
	"maps"

	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Agent is where an agent publishes, as a finished run has applied it. It outlives the objects of the agent, because
// objects in workspaces keep its finalizer: after kcpctl down they wait for it.
type Agent struct {
	// Cluster and Namespace are where the agent keeps its state.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ClusterUID identifies the cluster even if its name in the setup file changes. Empty: unknown.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Place is the workspace, or the cluster, whose APIs an agent on this machine publishes. Then Cluster is empty.
	Place string `json:"place,omitempty"`
	// The agent publishes through APIExport in Workspace.
	Workspace string `json:"workspace"`
	APIExport string `json:"apiExport"`
	// Published are the kinds that it publishes, and Related the related resources of workspaces that it copies, such
	// as secrets. Both are sorted.
	Published []Published `json:"published,omitempty"`
	Related   []string    `json:"related,omitempty"`
	// Orphaned means that the setup no longer has the agent, and that objects may still have its finalizer, although
	// the run that has removed it was to remove them. Later runs do.
	Orphaned bool `json:"orphaned,omitempty"`
}

// Published is a kind of the agent's cluster, such as Widget.example.com, and the kind and the resource in kcp as which
// it is published: Widget.example.com and widgets.example.com.
type Published struct {
	Kind     string `json:"kind"`
	As       string `json:"as"`
	Resource string `json:"resource"`
	// Filter selects the objects that are copied. It is empty for all.
	agent.Filter
}

// API returns what is published, without the filter of its objects.
func (p Published) API() Published {
	p.Filter = agent.Filter{}
	return p
}

// Compare orders what is published.
func (p Published) Compare(o Published) int {
	return cmp.Or(cmp.Compare(p.Resource, o.Resource), cmp.Compare(p.Kind, o.Kind), cmp.Compare(p.As, o.As))
}

// Publishes reports whether both publish through the same APIExport.
func (a Agent) Publishes(o Agent) bool {
	return a.Workspace == o.Workspace && a.APIExport == o.APIExport
}

// IsAt reports whether both are at the same place.
func (a Agent) IsAt(o Agent) bool {
	return a.Cluster == o.Cluster && a.Namespace == o.Namespace && a.Place == o.Place
}

// String returns the place in words.
func (a Agent) String() string {
	cluster := a.Cluster
	if name, ok := topology.IsServiceCluster(a.Place); ok {
		cluster = name
	} else if a.Place != "" {
		return "workspace " + a.Place
	}
	if cluster == "" {
		return "this machine"
	}
	return "namespace " + a.Namespace + " of cluster " + cluster
}

// SetAgents records the agents of a setup, and removes all others. A run that is limited to some components passes
// these, and keeps the others, except for those that it has removed.
func (r *Record) SetAgents(all map[topology.ID]Agent, limited bool, removed ...topology.ID) {
	out := map[topology.ID]Agent{}
	if limited {
		maps.Copy(out, r.Agents)
	}
	for _, id := range removed {
		delete(out, id)
	}
	for id, a := range all {
		if was := r.Agents[id]; was.IsAt(a) {
			a.ClusterUID = was.ClusterUID
		}
		out[id] = a
	}
	r.Agents = out
}

// WithAgents returns the record with further agents, and with those that it has as they are.
func (r *Record) WithAgents(more map[topology.ID]Agent) *Record {
	out := r.clone()
	for id, a := range more {
		if _, known := out.Agents[id]; !known {
			out.Agents[id] = a
		}
	}
	return out
}
