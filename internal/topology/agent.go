package topology

// AgentName returns the name that an agent of a setup has in its cluster and in kcp: the name of its lease, and the value of the
// annotation syncagent.kcp.io/agent-name (api-syncagent: --agent-name). It never changes.
func AgentName(setup, name string) string { return setup + "-" + name }

// AgentUser returns the common name of the certificate with which an agent authenticates to kcp.
func AgentUser(setup, name string) string { return "kcpctl:agent:" + setup + ":" + name }
