package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type upgradeOptions struct {
	env           *Env
	setup         setupFlags
	edit          applyFlags
	releaseChange bool
	version       string
}

func newUpgradeCmd(env *Env) *cobra.Command {
	o := &upgradeOptions{env: env}
	c := &cobra.Command{
		Use:   "upgrade VERSION",
		Short: "Upgrade a running setup to another kcp release",
		Long: `Set spec.version in the setup file, keeping its comments, order and style, and update one component
after another: the cache server, the root shard, the other shards, virtual workspace servers,
front-proxies. Each must be ready, and each shard registered, before the next is updated. At the end, a
workspace on each shard becomes Ready. If a component fails, the upgrade stops and the remaining
components keep running the previous release. Shards do not depend on one another: --parallel updates
several of them at a time. The replicas of a shard are still replaced one after another.

To continue, rerun the command or run kcpctl up. To go back, set the previous version in the file and
run kcpctl up --allow release-change. From kcp v0.30 on, components with an embedded etcd cannot go back
to v0.29 or an earlier release, except with a backup. kcp does not support skipping minor releases;
kcpctl compares with the running release, not with the one in the file. Components with an image tag of
their own are not upgraded. If the file sets a digest, change it before the upgrade.`,
		Example:           "  kcpctl upgrade v0.32.3 --dry-run\n  kcpctl upgrade v0.32.3",
		Args:              oneArg("version"),
		RunE:              withArg(&o.version, o.run),
		ValidArgsFunction: completeArgs(1, o.setup.names(env, o.candidates)),
	}
	o.setup.addStarting(c.Flags())
	o.edit.add(c, "everything is ready", "the edit")
	o.edit.wait.addParallel(c.Flags())
	addReleaseChange(c, &o.releaseChange)
	return c
}

func (o *upgradeOptions) run(ctx context.Context) error {
	if err := o.edit.validateEdit(o.setup.file); err != nil {
		return err
	}
	before, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	s, step, err := o.next(before)
	if err != nil {
		return err
	}
	from := before.file.Setup.Spec.Version
	o.noteChanges(s, step, from)
	up := upRun{
		header: fmt.Sprintf("upgrade kcp %q from %s to %s", s.topology.Name, from, o.version), wait: o.edit.wait,
		options: deploy.UpOptions{
			PlanOptions: run.PlanOptions{Force: o.edit.forceConflicts}, AllowReleaseChange: o.releaseChange,
		},
	}
	if o.edit.dryRun != dryRunNone {
		return o.edit.preview(ctx, before, s, up)
	}
	if err := s.connectToApply(ctx); err != nil {
		return err
	}
	defer s.close()
	if err := o.checkInstalled(ctx, s); err != nil {
		return err
	}
	up.options.Edit = before.writeEdit(s)
	res, err := up.run(ctx, s)
	if err != nil {
		return o.explain(err, s, from)
	}
	o.printResult(s, res)
	return nil
}

// checkInstalled fails if there is nothing to upgrade: the setup file, or the place, may be another one than meant.
func (o *upgradeOptions) checkInstalled(ctx context.Context, s *session) error {
	known, err := s.runtime.Record(ctx)
	if err == nil {
		err = run.RecordLost(ctx, s.runtime, s.topology.Name, known)
	}
	if err == nil && known.Empty() {
		err = clierr.New(clierr.Failed, "to deploy this release, set spec.version in the setup file, and run "+
			o.setup.command("up"), "there is no kcp %q to upgrade on %s", s.topology.Name, s.runtime.Where())
	}
	return err
}

// next returns the session with the new release, and the step to it. It fails if servers could not run.
func (o *upgradeOptions) next(before *session) (*session, release.Step, error) {
	step, err := release.StepTo(before.file.Setup.Spec.Version, o.version)
	if err != nil {
		return nil, step, clierr.New(clierr.BadInput, "use a release of kcp, such as "+release.Newest, "%w", err)
	}
	s, err := o.edited(before)
	if err == nil {
		err = errors.Join(o.checkImages(s), o.checkFlags(s, step))
	}
	return s, step, err
}

// candidates are the releases that the command accepts, and that the setup file or some component does not have yet. If
// the installation does not answer, its components run what the setup file says.
func (o *upgradeOptions) candidates(s *session) []string {
	known := s.installed()
	byDefault := cmp.Or(known.Data[topology.ID(topology.RootShard)].Release, s.file.Setup.Spec.Version)
	return slices.DeleteFunc(release.Known(), func(to string) bool {
		after, _, err := (&upgradeOptions{env: o.env, setup: o.setup, version: to}).next(s)
		if err != nil {
			return true
		}
		changes := to != s.file.Setup.Spec.Version
		for _, c := range kcpServers(after.topology) {
			from := cmp.Or(known.Data[c.ID()].Release, byDefault)
			if step, err := release.StepTo(from, c.Version); err == nil && step.Refused != "" {
				return true
			}
			changes = changes || from != c.Version
		}
		return !changes
	})
}

// installed is the record of the installation. It is empty if there is none, or if it cannot be read for completion.
func (s *session) installed() *record.Record {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	if s.connect(ctx) != nil {
		return &record.Record{}
	}
	defer s.close()
	known, err := s.runtime.Record(ctx)
	if err != nil || known == nil {
		return &record.Record{}
	}
	return known
}

// edited returns the session with the new release in the setup file.
func (o *upgradeOptions) edited(before *session) (*session, error) {
	if before.file.Setup.Spec.Version == o.version {
		return before.with(before.file)
	}
	file, err := before.file.SetVersion(o.version)
	if err != nil {
		return nil, err
	}
	return before.with(file)
}

// checkImages rejects an upgrade after which no server would run the new release.
func (o *upgradeOptions) checkImages(s *session) error {
	kept := pinned(s.topology, o.version)
	if len(kept) == 0 || len(kept) < len(kcpServers(s.topology)) {
		return nil
	}
	return clierr.New(clierr.BadInput, "change or remove "+imageFields(kept[0])+" in "+o.setup.file,
		"no server would run kcp %s: the setup file sets the image %s", o.version, kept[0].Image)
}

// checkFlags rejects extraArgs with flags that the new release no longer has: its servers would not start.
func (o *upgradeOptions) checkFlags(s *session, step release.Step) error {
	var unknown []string
	for _, c := range s.topology.Components {
		for _, arg := range c.ExtraArgs {
			if name, _, _ := strings.Cut(arg, "="); c.Version == o.version && slices.Contains(step.Gone, name) {
				unknown = append(unknown, fmt.Sprintf("%s: %s", c.ID(), name))
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return clierr.New(clierr.BadInput, "remove them from extraArgs",
		"kcp %s does not have these flags, which the setup sets:\n    %s", o.version, strings.Join(unknown, "\n    "))
}

// noteChanges prints what the new release changes, and which components are not upgraded.
func (o *upgradeOptions) noteChanges(s *session, step release.Step, from string) {
	for _, flag := range step.Gone {
		o.env.note("kcp " + o.version + " does not have the flag " + flag + ": kcpctl no longer sets it")
	}
	for _, n := range slices.Concat(step.Notes, pinnedNotes(s.topology, o.version)) {
		o.env.note(n)
	}
	if all := cannotReturn(s.topology, from); len(all) > 0 {
		o.env.note(fmt.Sprintf("%s: the embedded etcd changes from %s to %s, and cannot return. To go back to %s, "+
			"you need a backup from before the upgrade: kcpctl backup create", gather.Few(all, gather.Listed, ", "),
			release.EmbeddedEtcd(from), release.EmbeddedEtcd(o.version), from))
	}
}

// cannotReturn are the components that cannot return to a release, because their embedded etcd would not start.
func cannotReturn(t *topology.Topology, from string) []string {
	var out []string
	for _, c := range t.Servers() {
		if c.KeepsEmbeddedEtcd() && release.EtcdGoesBack(c.Version, from) {
			out = append(out, string(c.ID()))
		}
	}
	return out
}

// kcpServers are the servers of kcp, without the user's own ones, whose images have other tags.
func kcpServers(t *topology.Topology) []*topology.Component {
	return slices.DeleteFunc(t.Servers(), func(c *topology.Component) bool { return c.Custom != nil })
}

// byDigest reports whether the image of a component has a digest, which does not say a release.
func byDigest(c *topology.Component) bool { return strings.Contains(c.Image, "@") && !c.Cluster.Local }

// pinned are the servers that keep the image that the file sets, which is not of the release. This machine runs no
// images.
func pinned(t *topology.Topology, version string) []*topology.Component {
	return slices.DeleteFunc(kcpServers(t), func(c *topology.Component) bool {
		return strings.HasSuffix(c.Image, ":"+version) || (byDigest(c) || c.Cluster.Local) && c.Version == version
	})
}

// imageFields are the fields of the setup file that decide the image of a component.
func imageFields(c *topology.Component) string {
	if byDigest(c) {
		return "image.tag and image.digest"
	}
	return "image.tag"
}

// pinnedNotes are notes about images that the file sets: one note for each.
func pinnedNotes(t *topology.Topology, version string) []string {
	var out, images []string
	same := map[string][]*topology.Component{}
	kept := pinned(t, version)
	for _, c := range kcpServers(t) {
		if !byDigest(c) && !slices.Contains(kept, c) {
			continue
		}
		if same[c.Image] == nil {
			images = append(images, c.Image)
		}
		same[c.Image] = append(same[c.Image], c)
	}
	for _, image := range images {
		c := same[image][0]
		names := string(c.ID())
		if more := len(same[image]) - 1; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		note := fmt.Sprintf("%s: the image %s must be that of %s", names, image, version)
		if slices.Contains(kept, c) {
			note = fmt.Sprintf("%s: keeps the image %s, with the flags of %s; to upgrade it, too, change %s in the "+
				"setup file", names, image, c.Version, imageFields(c))
		}
		out = append(out, note)
	}
	return out
}

func (o *upgradeOptions) printResult(s *session, res *deploy.Result) {
	except := ""
	if kept := pinned(s.topology, o.version); len(kept) > 0 {
		except = ", except " + gather.Few(mapped(kept, func(c *topology.Component) string {
			return fmt.Sprintf("%s (%s)", c.ID(), c.Image)
		}), gather.Listed, ", ")
	}
	switch w := o.env.Streams.Err; {
	case o.edit.wait.output != "":
	case res.Plan.Empty():
		fmt.Fprintf(w, "\nkcp %q already runs %s%s: 0 changes.\n", s.topology.Name, o.version, except)
	default:
		fmt.Fprintf(w, "\nkcp %q now runs %s%s.\n", s.topology.Name, o.version, except)
	}
}

// explain adds to an error how to continue, and how to go back, once the setup file is edited. Before that, nothing has
// changed, and the error says what to do.
func (o *upgradeOptions) explain(err error, s *session, from string) error {
	if !s.written {
		return err
	}
	up := o.setup.command("up")
	hint := "components that were not reached still run as before; fix the cause and rerun this command, or run " + up
	if all := cannotReturn(s.topology, from); len(all) > 0 {
		hint += fmt.Sprintf("; once kcp %s has started with an embedded etcd, as in %s, it cannot go back to %s "+
			"without a backup from before the upgrade", o.version, gather.Few(all, gather.Listed, ", "), from)
	} else {
		hint += fmt.Sprintf("; to go back, set spec.version to %s in %s and run %s %s", from, o.setup.file, up,
			risk.ReleaseChange.Flag())
	}
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}
