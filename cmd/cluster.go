package cmd

import "github.com/spf13/cobra"

func newClusterCmd(env *Env) *cobra.Command {
	return newGroup("cluster", "Manage the physical clusters that run the workloads of workspaces",
		newClusterAddCmd(env), newClusterListCmd(env), newClusterCordonCmd(env), newClusterUncordonCmd(env),
		newClusterDrainCmd(env), newClusterRemoveCmd(env))
}
