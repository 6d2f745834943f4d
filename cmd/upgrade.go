package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type upgradeOptions struct {
	env           *Env
	setup         setupFlags
	edit          editFlags
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
run kcpctl up --allow release-change. kcp does not support skipping minor releases; kcpctl compares with
the running release, not with the one in the file. Components with an image tag or digest of their own
are not upgraded.`,
		Example:           "  kcpctl upgrade v0.32.3 --dry-run\n  kcpctl upgrade v0.32.3",
		Args:              oneArg("version"),
		RunE:              withArg(&o.version, o.run),
		ValidArgsFunction: completeArgs(1, o.setup.names(env, nextReleases)),
	}
	o.setup.addStarting(c.Flags())
	o.edit.add(c, "everything is ready")
	o.edit.wait.addParallel(c.Flags())
	addReleaseChange(c, &o.releaseChange)
	return c
}

func (o *upgradeOptions) run(ctx context.Context) error {
	if err := o.edit.validate(o.setup.file); err != nil {
		return err
	}
	before, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	from := before.file.Setup.Spec.Version
	step, err := o.step(from)
	if err != nil {
		return err
	}
	edited := before.file
	if from != o.version {
		if edited, err = before.file.SetVersion(o.version); err != nil {
			return err
		}
	}
	s, err := before.with(edited)
	if err != nil {
		return err
	}
	if err := o.checkFlags(s, step); err != nil {
		return err
	}
	o.noteChanges(s, step)
	up := upRun{
		header: fmt.Sprintf("upgrade kcp %q from %s to %s", s.topology.Name, from, o.version), wait: o.edit.wait,
		options: run.UpOptions{
			PlanOptions: run.PlanOptions{Force: o.edit.forceConflicts}, AllowReleaseChange: o.releaseChange,
		},
	}
	if o.edit.dryRun != dryRunNone {
		return o.edit.preview(ctx, before, s, up)
	}
	if err := s.connectToApply(ctx); err != nil {
		return o.explain(err, from)
	}
	defer s.close()
	up.options.Edit = before.writeEdit(s)
	res, err := up.run(ctx, s)
	if err != nil {
		return o.explain(err, from)
	}
	o.printResult(s, res)
	return nil
}

// step is the way from one release to the wanted one. It fails if kcp does not support it.
func (o *upgradeOptions) step(from string) (release.Step, error) {
	step, err := release.StepTo(from, o.version)
	if err != nil {
		return step, clierr.New(clierr.BadInput, "use a release of kcp, such as "+release.Newest, "%w", err)
	}
	if step.Refused != "" && !o.releaseChange { // the running release is also compared, before anything is written
		return step, clierr.New(clierr.BadInput, step.Instead+"; to upgrade anyway, add "+risk.ReleaseChange.Flag(),
			"cannot upgrade: %s", step.Refused)
	}
	return step, nil
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
func (o *upgradeOptions) noteChanges(s *session, step release.Step) {
	for _, flag := range step.Gone {
		o.env.note("kcp " + o.version + " does not have the flag " + flag + ": kcpctl no longer sets it")
	}
	for _, n := range slices.Concat(step.Notes, pinned(s.topology, o.version)) {
		o.env.note(n)
	}
}

// pinned are notes about components that keep the image that the file sets: one note for each image.
func pinned(t *topology.Topology, version string) []string {
	var out, images []string
	keep := map[string][]*topology.Component{}
	for _, c := range t.Servers() {
		if strings.HasSuffix(c.Image, ":"+version) {
			continue
		}
		if keep[c.Image] == nil {
			images = append(images, c.Image)
		}
		keep[c.Image] = append(keep[c.Image], c)
	}
	for _, image := range images {
		c := keep[image][0]
		names := string(c.ID())
		if more := len(keep[image]) - 1; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		field := "image.tag"
		if strings.Contains(image, "@") {
			field = "image.digest"
		}
		out = append(out, fmt.Sprintf(
			"%s: keeps the image %s, with the flags of %s; to upgrade it, too, change %s in the setup file",
			names, image, c.Version, field))
	}
	return out
}

func (o *upgradeOptions) printResult(s *session, res *run.Result) {
	switch w := o.env.Streams.Err; {
	case o.edit.wait.output != "":
	case res.Plan.Empty():
		fmt.Fprintf(w, "\nkcp %q already runs %s: 0 changes.\n", s.topology.Name, o.version)
	default:
		fmt.Fprintf(w, "\nkcp %q now runs %s.\n", s.topology.Name, o.version)
	}
}

// explain adds to an error how to continue, and how to go back.
func (o *upgradeOptions) explain(err error, from string) error {
	up := o.setup.command("up")
	hint := "components that were not reached still run as before; fix the cause and rerun this command, or run " + up
	if from != o.version {
		hint += fmt.Sprintf("; to go back, set spec.version to %s in %s and run %s %s",
			from, o.setup.file, up, risk.ReleaseChange.Flag())
	}
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}
