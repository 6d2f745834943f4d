package cmd

import "github.com/spf13/cobra"

// newClusterCmd groups the commands for physical clusters.
func newClusterCmd(env *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Manage the physical clusters that run the workloads of workspaces",
	}
	c.AddCommand(newClusterAddCmd(env), newClusterListCmd(env), newClusterCordonCmd(env), newClusterUncordonCmd(env),
		newClusterDrainCmd(env),
		newClusterRemoveCmd(env))
	return c
}
