package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type backupVerifyOptions struct {
	env    *Env
	output string
}

func newBackupVerifyCmd(env *Env) *cobra.Command {
	o := &backupVerifyOptions{env: env}
	c := &cobra.Command{
		Use:   "verify DIR/NAME",
		Short: "Read a backup, and report damage and what does not fit together",
		Long: `Read all files of a backup, and compare them with its manifest. This needs neither kcp nor a cluster.
Then compare the shards: the snapshots of several etcds are never of the same moment, so a workspace
that was created or deleted in between is in one of them and not in the other.

The exit code is 0 if all fits together, 1 if something does not, and 2 if the backup is damaged.`,
		Example: "  kcpctl backup verify ./backups/demo-20261123T221500Z",
		Args:    oneArg("backup"),
		RunE:    func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0]) },
	}
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// verification is the result in machineFormats.
type verification struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	backup.Verified
}

func (o *backupVerifyOptions) run(ctx context.Context, arg string) error {
	target, name, err := splitArchive(o.env, arg)
	if err != nil {
		return err
	}
	v := &backup.Verify{Target: target, Name: name, Report: func(id topology.ID, s run.Status, message string) {
		if o.output == "" && s != run.Running {
			fmt.Fprintf(o.env.Streams.Err, "%s: %s\n", id, message)
		}
	}}
	found, err := v.Run(ctx)
	if err != nil {
		return orUnknown(err)
	}
	if o.output != "" {
		err = encode(o.env.Streams.Out, o.output, verification{v1alpha1.APIVersion, "BackupVerification", *found})
	} else {
		o.print(found)
	}
	switch {
	case err != nil:
		return err
	case len(found.Damage) > 0:
		return silent(clierr.BadInput)
	case len(found.Tears) > 0:
		return silent(clierr.Failed)
	}
	return nil
}

func (o *backupVerifyOptions) print(v *backup.Verified) {
	out := o.env.Streams.Out
	for _, d := range v.Damage {
		fmt.Fprintf(out, "%s %s\n", out.Cross(), d)
	}
	if len(v.Damage) > 0 {
		fmt.Fprintln(out, "The backup is damaged: use another one.")
		return
	}
	m := v.Manifest
	for _, t := range v.Tears {
		printTear(out, t, "after a restore", t.Repair)
	}
	fmt.Fprintf(out, "%s has %s with %s, taken within %s, %s ago.\n", m.Name,
		gather.Count(len(m.Databases), "shard", "shards"),
		gather.Count(logicalClusters(m), "logical cluster", "logical clusters"), m.Skew.Round(1e6),
		ui.Age(o.env.Now().Sub(m.Created)))
	for shard, why := range m.Partial {
		fmt.Fprintf(out, "It is partial: it has no snapshot of shard %s: %s.\n", shard, why)
	}
	for _, why := range m.Doubtful() {
		fmt.Fprintf(out, "The snapshot of shard %s.\n", why)
	}
	if len(m.Recipients) == 0 {
		fmt.Fprintln(out, "It has no keys: restore the certificate authorities from elsewhere.")
	}
	if len(v.Tears) == 0 {
		fmt.Fprintln(out, "All snapshots fit together.")
	}
}
