package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type upgradeOptions struct {
	setupOptions
	editOptions
	onPurpose
	version string
}

func newUpgradeCmd(g *globalOptions) *cobra.Command {
	o := &upgradeOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "upgrade VERSION",
		Short: "Bring a running setup to another kcp release",
		Long: `Upgrade sets spec.version in the setup file, where comments, order and style stay as they are, and changes one component
after another: the cache server, the root shard, the other shards, virtual workspace servers, front-proxies. Each has to be
ready, and registered, before the next is touched; at the end a workspace on each shard becomes Ready. It stops at the first
that fails, and leaves the others as they run.

Then the same command, or kcpctl up, continues; kcpctl up --allow-release-change with the previous version in the file goes
back. What runs decides whether a minor release is skipped, which kcp does not support. Components that name an image tag or digest of their own stay on it.`,
		Example: "  kcpctl upgrade v0.32.3 --dry-run\n  kcpctl upgrade v0.32.3",
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.ValidArgsFunction = completeArgs(1, o.fromFile(nextReleases))
	o.addFlags(c.Flags())
	o.addEditFlags(c, 30*time.Minute, "everything is ready")
	o.addReleaseFlag(c)
	return c
}

func (o *upgradeOptions) complete(args []string) (err error) {
	if o.version, err = oneArg(args, "version"); err != nil {
		return err
	}
	return o.check(o.file)
}

func (o *upgradeOptions) run(ctx context.Context) error {
	before, err := o.load()
	if err != nil {
		return err
	}
	from := before.File.Setup.Spec.Version
	step, err := release.StepTo(from, o.version)
	if err != nil {
		return clierr.New(clierr.BadInput, "use a release of kcp, such as "+release.Newest, "%w", err)
	}
	if step.Refused != "" && !o.releaseChange { // what runs is compared too, before anything is written
		return clierr.New(clierr.BadInput, step.Instead+"; to do it all the same: --allow-release-change", "cannot upgrade: %s", step.Refused)
	}
	edited := before.File
	if from != o.version {
		if edited, err = before.File.SetVersion(o.version); err != nil {
			return err
		}
	}
	s, err := before.with(edited)
	if err != nil {
		return err
	}
	if err := o.consider(s, step); err != nil {
		return err
	}
	if o.dryRun != dryRunNone {
		return o.preview(ctx, before, s, o.header(s, from), run.UpOptions{AllowReleaseChange: o.releaseChange})
	}
	return o.upgrade(ctx, before, s, from)
}

// consider refuses flags that the new release would end on, and says what changes and what does not.
func (o *upgradeOptions) consider(s *session, step release.Step) error {
	var refused []string
	for _, c := range s.Topology.Components {
		for _, arg := range c.ExtraArgs {
			if name, _, _ := strings.Cut(arg, "="); c.Version == o.version && slices.Contains(step.Gone, name) {
				refused = append(refused, fmt.Sprintf("%s: %s", c.ID(), name))
			}
		}
	}
	if len(refused) > 0 {
		return clierr.New(clierr.BadInput, "remove them from extraArgs", "kcp %s does not know flags that the setup sets:\n    %s",
			o.version, strings.Join(refused, "\n    "))
	}
	for _, flag := range step.Gone {
		o.note("kcp " + o.version + " does not know " + flag + ": it is not set any more")
	}
	for _, n := range step.Notes {
		o.note(n)
	}
	for _, n := range pinned(s.Topology, o.version) {
		o.note(n)
	}
	return nil
}

// pinned are notes about components that stay on the image that the file names: one for each image.
func pinned(t *topology.Topology, version string) []string {
	var out, images []string
	stay := map[string][]*topology.Component{}
	for _, c := range t.OfKind(topology.CacheServer, topology.RootShard, topology.Shard, topology.VirtualWorkspaces, topology.FrontProxy) {
		if strings.HasSuffix(c.Image, ":"+version) {
			continue
		}
		if stay[c.Image] == nil {
			images = append(images, c.Image)
		}
		stay[c.Image] = append(stay[c.Image], c)
	}
	for _, image := range images {
		c := stay[image][0]
		who := string(c.ID())
		if more := len(stay[image]) - 1; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		field := "image.tag"
		if strings.Contains(image, "@") {
			field = "image.digest"
		}
		out = append(out, fmt.Sprintf("%s: stays on the image %s, with the flags of %s; to upgrade it too, change %s in the setup file",
			who, image, c.Version, field))
	}
	return out
}

func (o *upgradeOptions) upgrade(ctx context.Context, before, s *session, from string) error {
	res, err := o.bringUp(ctx, s, o.header(s, from), run.UpOptions{AllowReleaseChange: o.releaseChange, Edit: before.edit(s)})
	if err != nil {
		return o.explain(err, from)
	}
	if o.output == "" {
		done := fmt.Sprintf("kcp %q runs %s.", s.Topology.Name, o.version)
		if res.Plan.Empty() {
			done = fmt.Sprintf("kcp %q ran %s already: 0 changes.", s.Topology.Name, o.version)
		}
		fmt.Fprintf(o.Streams.Err, "\n%s\n", done)
	}
	return nil
}

func (o *upgradeOptions) header(s *session, from string) string {
	return fmt.Sprintf("upgrade kcp %q from %s to %s", s.Topology.Name, from, o.version)
}

// explain adds to an error how to go on, and how to go back.
func (o *upgradeOptions) explain(err error, from string) error {
	hint := fmt.Sprintf("what comes after it still runs as before; fix the cause and run this command again, or kcpctl up%s", o.flagsForTip())
	if from != o.version {
		hint += fmt.Sprintf("; to go back, set spec.version to %s in %s and run kcpctl up%s --allow-release-change", from, o.file, o.flagsForTip())
	}
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}
