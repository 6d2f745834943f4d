package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// nextRelease refuses to skip a kcp release, and to return to an earlier one. It compares with what runs, and with the
// release that wrote the data, not with a file: data outlives what runs.
func (g *guard) nextRelease(ctx context.Context) error {
	var errs []error
	for _, it := range g.res.Plan.Items {
		c := g.Topology.Component(it.Component)
		if c == nil || c.Custom != nil || !plan.HasPods(it.Kind) || it.Want == nil || wasCustom(c, it.Live) {
			continue
		}
		wrote := g.before.Data[c.ID()].Release
		err := g.sameImage(it, c, wrote)
		if err == nil && (it.Action == plan.Change || it.Action == plan.Create) {
			err = g.nextReleaseOf(ctx, it, c, wrote)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sameImage refuses another release for an image that does not change: a digest names an image, and not its release.
// The component would get the flags of that release, and the record would say that it has written the data. This
// machine runs no images.
func (g *guard) sameImage(it plan.Item, c *topology.Component, wrote string) error {
	image := record.Image(c.Kind, it.Want)
	if g.Options.AllowReleaseChange || c.Kind == topology.Etcd || c.Cluster.Local || wrote == "" || wrote == c.Version ||
		!strings.Contains(image, "@") || image != record.Image(c.Kind, it.Live) {
		return nil
	}
	return clierr.New(clierr.Failed,
		fmt.Sprintf("set image.digest to that of %s; if this component is to stay as it is, set its image.tag to %s, "+
			"too; if the image is of %s, and the setup was wrong: %s", c.Version, wrote, c.Version,
			risk.ReleaseChange.Flag()),
		"%s runs %s as kcp %s, and the setup has the same image for kcp %s", c.ID(), image, wrote, c.Version)
}

// wasCustom reports whether a server of virtual workspaces runs a user's program, whose tag is not a kcp release.
func wasCustom(c *topology.Component, live *unstructured.Unstructured) bool {
	if c.Kind != topology.VirtualWorkspaces || live == nil {
		return false
	}
	own := record.Container(c.Kind, live)
	return own != nil && len(own.Command) > 0 &&
		!slices.Contains(own.Command, "/"+topology.VirtualWorkspaces.Program())
}

// nextReleaseOf refuses a release of one component. wrote is the release that wrote its data.
func (g *guard) nextReleaseOf(ctx context.Context, it plan.Item, c *topology.Component, wrote string) error {
	what, from, next := "runs", g.running(ctx, it, c), record.ReleaseOf(c, it.Want)
	if len(from) == 0 {
		what = "has data of"
		from = []string{wrote}
	}
	if c.Kind != topology.Etcd {
		what += " kcp"
	}
	for _, from := range from {
		if c.KeepsEmbeddedEtcd() && !g.mayLose(c.ID()) && release.EtcdGoesBack(from, next) {
			return clierr.New(clierr.Failed,
				"stay on "+from+" or a newer release; to go back, restore a backup from before the upgrade: kcpctl "+
					"restore; if "+from+" has never started here: kcpctl up "+risk.ReleaseChange.Flag()+" "+
					risk.DataChange.Of(string(c.ID())),
				"%s %s %s, with an embedded etcd %s: the one of %s is %s, and does not start with this data",
				c.ID(), what, from, release.EmbeddedEtcd(from), next, release.EmbeddedEtcd(next))
		}
		if g.Options.AllowReleaseChange {
			continue
		}
		if refused, instead := refusedRelease(c.Kind, from, next); refused != "" {
			return clierr.New(clierr.Failed, instead+"; to do it anyway: "+risk.ReleaseChange.Flag(),
				"%s %s %s: %s", c.ID(), what, from, refused)
		}
	}
	return nil
}

// running returns the releases that a component runs: two if a rollout is stuck, and none if it does not run or its
// image does not say.
func (g *guard) running(ctx context.Context, it plan.Item, c *topology.Component) []string {
	if it.Live == nil {
		return nil
	}
	live := record.ImageTag(c.Kind, it.Live)
	if _, err := version.ParseSemantic(live); err != nil {
		return nil
	}
	out := []string{live}
	if live == record.ReleaseOf(c, it.Want) || c.Kind == topology.Etcd {
		return out
	}
	if s, err := g.Runtime.State(ctx, c); err == nil && s.Version != "" && s.Version != live {
		out = append(out, s.Version)
	}
	return out
}

// refusedRelease returns why a component must not go from one release to another, and what to do instead. Both are
// empty if it may, or if one of the two is not a version.
func refusedRelease(kind topology.Kind, from, to string) (refused, instead string) {
	if from == to {
		return "", ""
	}
	if kind != topology.Etcd {
		step, err := release.StepTo(from, to)
		if err != nil {
			return "", ""
		}
		return step.Refused, step.Instead
	}
	if !release.Older(to, from) {
		return "", ""
	}
	return fmt.Sprintf("%s is older than %s, and etcd may not be able to read data of a newer release", to, from),
		"stay on " + from + " or a newer release"
}
