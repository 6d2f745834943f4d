package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	if g.Options.AllowReleaseChange {
		return nil
	}
	var errs []error
	for _, it := range g.res.Plan.Items {
		c := g.Topology.Component(it.Component)
		workload := plan.HasPods(it.Kind)
		if c == nil || c.Custom != nil || !workload || it.Action != plan.Change && it.Action != plan.Create ||
			wasCustom(c, it.Live) {
			continue
		}
		errs = append(errs, g.nextReleaseOf(ctx, it, c, g.before.Data[c.ID()].Release))
	}
	return errors.Join(errs...)
}

// wasCustom reports whether a server of virtual workspaces runs a user's program, whose tag is not a kcp release.
func wasCustom(c *topology.Component, live *unstructured.Unstructured) bool {
	if c.Kind != topology.VirtualWorkspaces || live == nil {
		return false
	}
	containers, _, _ := unstructured.NestedSlice(live.Object, "spec", "template", "spec", "containers")
	for _, c := range containers[:min(1, len(containers))] { // the one that has the tag
		container, _ := c.(map[string]any)
		command, _, _ := unstructured.NestedStringSlice(container, "command")
		return len(command) > 0 && !slices.Contains(command, "/"+topology.VirtualWorkspaces.Program())
	}
	return false
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
	live := record.ImageTag(it.Live)
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
