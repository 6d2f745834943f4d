package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
)

type restoreOptions struct {
	env      *Env
	setup    setupFlags
	wait     waitFlags
	archive  string
	shards   []string
	identity string
	// instead are the backups whose interrupted restores this one replaces.
	instead []string
	// originalLost accepts that agents and clusters of an installation elsewhere are taken over.
	originalLost bool
	image        string
	dryRun       bool
	yes          bool
}

func newRestoreCmd(env *Env) *cobra.Command {
	o := &restoreOptions{env: env}
	c := &cobra.Command{
		Use:   "restore DIR/NAME",
		Short: "Bring back the data of shards from a backup, and start kcp with it",
		Long: `Verify a backup, stop the setup, replace the data of its shards, and start it again. The data that is
replaced is moved aside, not deleted. Where the installation does not exist, its certificate authorities and
its record are restored, too: old kubeconfigs and tokens work. This needs a backup of all shards.

On Kubernetes clusters the data is placed in the PersistentVolumeClaims of the etcds, which are created if they
do not exist. For each claim a pod with the image of kcpctl receives the data through the API server.

Clients that watch from before list again: the revisions of the restored etcds are higher than any that
the old ones reached. The cache server begins empty, and the shards fill it.

After an interruption, run the same command again: until it has finished, kcpctl up does not start servers
without their data. If the backup cannot be used any more, restore another one with --allow other-backup=NAME. It must
have all shards whose data the interrupted restore replaces, and replaces it, too.`,
		Example: `  kcpctl restore ./backups/demo-20261123T221500Z --identity key.txt
  kcpctl restore ./backups/demo-20261123T221500Z --shard alpha
  kcpctl restore ./backups/demo-20261123T221500Z --local --dry-run`,
		Args: oneArg("backup"),
		RunE: withArg(&o.archive, o.run),
	}
	f := c.Flags()
	o.setup.addStarting(f)
	f.StringSliceVar(&o.shards, "shard", nil, "restore only this shard, such as alpha or root (repeatable)")
	f.StringVar(&o.identity, "identity", "",
		"file with a private key of age, for the certificate authorities in the backup")
	f.StringVar(&o.image, "image", "",
		"image of kcpctl for the pods that write data (default: spec.workloads.image)")
	o.setup.addAllowOtherCluster(c)
	addRisk(c, acceptance{risk: risk.OtherBackup, value: "NAME", accept: collect(&o.instead),
		usage: "restore this backup instead of NAME, whose restore was interrupted"})
	addRisk(c, acceptance{risk: risk.LostInstallation, accept: set(&o.originalLost),
		usage: "take over the agents and clusters of the installation, which does not run elsewhere any more"})
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be restored, and change nothing")
	addYes(f, &o.yes)
	completeFlag(c, "shard", o.setup.names(env, shardNames))
	o.wait.add(c, "everything is ready")
	excludeFlag(f, "local", "image") // there are no pods
	c.AddCommand(newRestoreRepairCmd(env))
	return c
}

func (o *restoreOptions) run(ctx context.Context) error {
	target, name, err := splitArchive(o.env, o.archive)
	if err != nil {
		return err
	}
	var identities []age.Identity
	if o.identity != "" {
		if identities, err = archive.Identities(o.identity); err != nil {
			return err
		}
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	s.image = o.image
	shards, err := selectedShards(s, o.shards)
	if err != nil {
		return err
	}
	m, err := archive.Load(ctx, target, name)
	if err != nil {
		return err
	}
	o.setup.allowLostRecord = m.Installation // the backup has the record that it has lost
	if err := s.connectToApply(ctx); err != nil {
		return err
	}
	defer s.close()
	place, ok := workspace.Below(s.runtime).(backup.Place)
	if !ok {
		return clierr.New(clierr.Failed, "restore a copy on this machine with --local",
			"kcpctl cannot replace data on %s", s.runtime.Where())
	}
	r := &backup.Restore{
		Topology: s.topology, Runtime: s.runtime, Place: place, Target: target, Name: name, Shards: shards,
		Instead: o.instead, OriginalLost: o.originalLost, Identities: identities,
		Observe: s.reporter.observe, Now: o.env.Now,
	}
	if err := o.restore(ctx, s, r); err != nil || o.dryRun {
		return err
	}
	return o.start(ctx, s)
}

// restore replaces the data, if the user agrees.
func (o *restoreOptions) restore(ctx context.Context, s *session, r *backup.Restore) error {
	end := s.reporter.begin(ctx, fmt.Sprintf("restore kcp %q from %s", s.topology.Name, r.Name))
	p, err := r.Plan(ctx)
	end()
	if err != nil {
		return err
	}
	if o.dryRun {
		o.print(s, p)
		return nil
	}
	if yes, err := o.env.confirmed(ctx, o.yes, o.question(s, p)); err != nil || !yes {
		return cmp.Or(err, silent(clierr.Failed))
	}
	end = s.reporter.begin(ctx, fmt.Sprintf("replace the data of kcp %q", s.topology.Name))
	defer end()
	return r.Run(ctx, p)
}

func (o *restoreOptions) start(ctx context.Context, s *session) error {
	res, err := upRun{header: fmt.Sprintf("start kcp %q", s.topology.Name), wait: o.wait}.run(ctx, s)
	if err != nil {
		return clierr.Also(err, "the data is restored; "+o.setup.command("up")+" continues")
	}
	if o.wait.output == "" && res != nil {
		fmt.Fprintf(o.env.Streams.Err, "\nkcp %q runs with the data of the backup.\n", s.topology.Name)
	}
	return nil
}

func (o *restoreOptions) question(s *session, p *backup.Plan) string {
	question := fmt.Sprintf("Stop kcp %q on %s, and replace the data of %s with the backup of %s? The present "+
		"data is moved aside.", s.topology.Name, s.runtime.Where(), joinIDs(p.Restored),
		p.Verified.Manifest.Created.Format("2006-01-02 15:04:05 MST"))
	if len(p.TakenOver) > 0 {
		question += fmt.Sprintf(" The restored kcp takes over %s: their objects become those of the backup.",
			joinIDs(p.TakenOver))
	}
	return question
}

func joinIDs(ids []topology.ID) string {
	return strings.Join(mapped(ids, func(id topology.ID) string { return string(id) }), ", ")
}

func (o *restoreOptions) print(s *session, p *backup.Plan) {
	for _, id := range p.Restored {
		o.env.print(fmt.Sprintf("%s: data would be replaced (dry run)\n", id))
	}
	for _, id := range p.Emptied {
		o.env.print(fmt.Sprintf("%s: would begin empty (dry run)\n", id))
	}
	if p.Keys {
		o.env.print(fmt.Sprintf("installation %s: authorities and record would be restored (dry run)\n",
			p.Verified.Manifest.Installation))
	}
	for _, id := range p.TakenOver {
		o.env.print(fmt.Sprintf("%s: would be taken over (dry run)\n", id))
	}
	if o.env.events == nil {
		(&backupVerifyOptions{env: o.env}).print(p.Verified)
	}
}
