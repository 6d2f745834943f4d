package render

import (
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// process is the process of a component.
type process struct {
	t *topology.Topology
	s *pki.State
	c *topology.Component
}

// program is how components of a kind run.
type program struct {
	command []string
	flags   func(process) []flag
	// pod sets what pods of the kind have: probes, ports, and how they are replaced.
	pod func(*workload, *topology.Component)
	// objects adds the workload, and the objects around it.
	objects func(*objects, workload)
}

// programOf returns how a kind that runs does so.
func programOf(k topology.Kind) program {
	switch k {
	case topology.Etcd:
		return program{[]string{"etcd"}, func(p process) []flag { return etcdFlags(p.c) },
			(*workload).setEtcd, (*objects).etcd}
	case topology.CacheServer:
		return program{[]string{"/" + k.Program()},
			func(p process) []flag { return cacheServerFlags(p.s.Installation, p.c) },
			(*workload).setServer, (*objects).server}
	case topology.FrontProxy:
		return program{[]string{"/" + k.Program()}, func(p process) []flag { return frontProxyFlags(p.t, p.c) },
			(*workload).setFrontProxy, (*objects).server}
	case topology.VirtualWorkspaces:
		return program{[]string{"/" + k.Program()}, func(p process) []flag { return virtualWorkspacesFlags(p.t, p.c) },
			(*workload).setServer, (*objects).server}
	case topology.Agent:
		return program{[]string{"/usr/local/bin/api-syncagent"}, func(p process) []flag { return agentFlags(p.c) },
			(*workload).setAgent, (*objects).agent}
	case topology.Workloads:
		return program{[]string{"/" + topology.ManagedBy, "controller"},
			func(p process) []flag { return controllerFlags(p.s.Installation, p.c) },
			(*workload).setController, (*objects).controller}
	case topology.Physical:
		return program{[]string{"/" + topology.ManagedBy, "syncer"}, func(p process) []flag { return syncerFlags(p.c) },
			(*workload).setSyncer, (*objects).syncer}
	}
	return program{[]string{"/" + k.Program(), "start"}, func(p process) []flag { return shardFlags(p.t, p.s, p.c) },
		(*workload).setServer, (*objects).server}
}

// args returns the arguments of a process. extraArgs of the setup replace arguments with the same name.
func (p program) args(of process) []string { return replaceFlags(p.flags(of), of.c.ExtraArgs) }
