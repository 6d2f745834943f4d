package render

import (
	"fmt"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const portMetrics = "metrics"

// agentFlags returns the flags of api-syncagent (api-syncagent: cmd/api-syncagent/options.go).
func agentFlags(c *topology.Component) []flag {
	name := topology.AgentName(c.Setup, c.Name)
	fl := []flag{
		{"namespace", c.ServiceNamespace()},
		{"agent-name", name},
		{"apiexportendpointslice-ref", c.Agent.APIExport}, // kcp gives the slice the name of its APIExport
		{"kcp-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigKcp))},
		// Without a selector an agent publishes the resources of all others too.
		{"published-resource-selector", topology.LabelAgent + "=" + name},
		// Also one replica holds a lease: it shows that the agent works.
		{"enable-leader-election", "true"},
		{"metrics-address", fmt.Sprintf("%s:%d", c.BindAddress, c.Port)},
	}
	if c.Agent.ServicePlace != "" {
		fl = append(fl, flag{"kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigService))})
	}
	if *c.LogLevel >= debugLevel {
		fl = append(fl, flag{"log-debug", "true"})
	}
	return fl
}

// debugLevel is the log level from which an agent logs details. It has only two levels.
const debugLevel = 4

// setAgent sets the fields that differ between pods of an agent and pods of kcp.
func (w *workload) setAgent(c *topology.Component) {
	w.ServiceAccount, w.MountToken = c.Object(), true
	w.Strategy = dict{"type": "RollingUpdate", "rollingUpdate": dict{"maxSurge": 1, "maxUnavailable": 0}}
	w.Ports = []dict{{"name": portMetrics, "containerPort": c.Port}}
	probe := func(period, failures int) dict {
		return dict{
			"httpGet":       dict{"path": "/metrics", "port": portMetrics},
			"periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
		}
	}
	// An agent ends if the workspace or the APIExport do not answer. It serves metrics as soon as it has found them.
	w.StartupProbe, w.ReadinessProbe, w.LivenessProbe = probe(1, 120), probe(5, 3), probe(10, 6)
}
