package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

type backupCreateOptions struct {
	env         *Env
	setup       setupFlags
	to          string
	shards      []string
	recipients  []string
	withoutKeys bool
	keep        keepFlags
	applied     bool
	timeout     time.Duration
	output      string
	// cronJob prints a job that takes backups, instead of taking one. It runs on a schedule, with the credentials in a
	// Secret.
	cronJob     bool
	schedule    string
	credentials string
}

func newBackupCreateCmd(env *Env) *cobra.Command {
	o := &backupCreateOptions{env: env}
	c := &cobra.Command{
		Use:   "create",
		Short: "Take a backup of all shards, the setup and the certificate authorities",
		Long: `Take a snapshot of the etcd of each shard. All snapshots begin together, so that they differ by
milliseconds. The backup also has the setup file that was applied, the record of the installation, and
the certificate authorities with their private keys, encrypted with age to the recipients. It is
complete when its manifest is written, which is last.

Nothing is stopped. The snapshots contain everything that is in workspaces, including Secrets, and are
not encrypted: keep them where only you can read them.

With --keep or --keep-days, old backups of the installation are deleted when the new one is written, as kcpctl backup
prune does, also if the new one is partial. A partial one never replaces one that has all shards.

--print-cronjob prints the manifest of a CronJob that takes backups, with its ServiceAccount and the permissions that it
needs. It uses the setup that was applied last (--applied) and the image of spec.workloads.image. It writes to a bucket,
or to a volume of its cluster: --to pvc://CLAIM/DIR.`,
		Example: `  kcpctl backup create --to ./backups --recipient "$RECIPIENT"
  kcpctl backup create --to ./backups --without-keys
  kcpctl backup create --to pvc://backups --recipient "$RECIPIENT" --keep 14 --print-cronjob | kubectl apply -f -`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	f := c.Flags()
	o.setup.add(f)
	f.StringVar(&o.to, "to", "", "directory for the backup, or a bucket: s3://BUCKET/PREFIX")
	f.StringSliceVar(&o.shards, "shard", nil, "take only this shard, such as alpha or root (repeatable)")
	f.StringSliceVar(&o.recipients, "recipient", nil,
		"public key of age that the private keys are encrypted to (repeatable)")
	f.BoolVar(&o.withoutKeys, "without-keys", false, "leave the certificate authorities out")
	o.keep.add(f)
	f.BoolVar(&o.applied, "applied", false,
		"use the setup that was applied last, instead of the content of the setup file")
	f.BoolVar(&o.cronJob, "print-cronjob", false, "print a CronJob that takes backups")
	f.StringVar(&o.schedule, "schedule", backupNightly, "with --print-cronjob: when it runs")
	f.StringVar(&o.credentials, "credentials-secret", "",
		"with --print-cronjob: Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	requireFlag(f, "print-cronjob", "schedule", "credentials-secret")
	addTimeout(f, &o.timeout, "take the backup")
	completeFlag(c, "shard", o.setup.names(env, shardNames))
	addEvents(c, &o.output)
	excludeFlag(f, "print-cronjob", "output", "as", "as-group")
	excludeFlag(f, "without-keys", "recipient")
	return c
}

func (o *backupCreateOptions) run(ctx context.Context) error {
	_, keyErr := backup.Recipients(o.recipients, o.withoutKeys)
	err := errors.Join(keyErr, o.keep.validate())
	if o.cronJob && err == nil {
		return o.printCronJob()
	}
	target, openErr := openTarget(o.env, "--to", o.to)
	if err = errors.Join(openErr, err); err != nil {
		return err
	}
	s, shards, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	source, err := s.snapshots()
	if err != nil {
		return err
	}
	ctx, cancel := limited(ctx, o.timeout, "complete")
	defer cancel()
	c := &backup.Create{
		Topology: s.topology, Archive: s.runtime, Source: source, Target: target, Shards: shards,
		Recipients: o.recipients, WithoutKeys: o.withoutKeys, Keep: o.keep.rule(), Kcpctl: version.Get().Version,
		Observe: s.reporter.observe, Now: o.env.Now,
	}
	end := s.reporter.begin(ctx, fmt.Sprintf("back up kcp %q", s.topology.Name))
	m, err := c.Run(ctx)
	end()
	if m != nil && o.output == "" {
		fmt.Fprintf(o.env.Streams.Err, "\n%s: %s, %s, within %s.\n", m.Name,
			gather.Count(len(m.Databases), "shard", "shards"), bytesize.Format(m.Bytes()),
			m.Skew.Round(time.Millisecond))
	}
	return err
}

// open connects to the setup, and returns the selected shards.
func (o *backupCreateOptions) open(ctx context.Context) (*session, []topology.ID, error) {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return nil, nil, err
	}
	shards, err := selectedShards(s, o.shards)
	if err != nil && !o.applied { // with --applied it is another setup than in the file
		return nil, nil, err
	}
	if err := s.connect(ctx); err != nil || !o.applied {
		return s, shards, err
	}
	if s, err = s.asApplied(ctx); err != nil {
		return nil, nil, err
	}
	shards, err = selectedShards(s, o.shards)
	return s, shards, err
}

func selectedShards(s *session, names []string) ([]topology.ID, error) {
	var out []topology.ID
	for _, name := range names {
		c := s.topology.Component(topology.ShardID(name))
		if c == nil {
			return nil, unknownName("shard", name, shardNames(s))
		}
		out = append(out, c.ID())
	}
	return out, nil
}
