package cmd

import "github.com/spf13/cobra"

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `The exit codes of kcpctl:

    0  The command has done what it says.
    1  It failed. diff: there are differences. check: a check failed. certs check: a certificate expires soon.
       backup verify: the snapshots do not fit together. version --check: a newer kcpctl is available.
    2  A flag, an argument or the setup file is invalid. Nothing was changed. backup verify: the backup is damaged.
    3  Everything is applied, and something is not ready in time. status: something is not ready.
    4  Another field manager owns a field, another run holds the lock, or an object has changed in the meantime.
    5  diff, check, certs check, etcd members, top workspaces and version --check could not find out everything, for
       example because a server does not answer. backup create: a shard is not in the backup.
  130  The command was interrupted. The same command continues.

kubeconfig with a command after -- ends with the exit code of that command.`,
	}
}
