package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// inherits refuses a plan that takes Services over from kcp-operator while the setup has other authorities than their
// installation: kubeconfigs, certificates and tokens of its clients would end. Nothing that cannot be read counts as
// equal.
func (g *guard) inherits(ctx context.Context) error {
	taken := slices.DeleteFunc(slices.Clone(g.res.Plan.Items), func(it plan.Item) bool {
		return it.Action != plan.Change || it.Live.GetLabels()[topology.LabelApplySet] != "" || !operator.Owned(it.Live)
	})
	for _, it := range taken {
		if c := g.Topology.Component(it.Component); c == nil || !c.IsAlias(it.Kind, it.Name) {
			return clierr.New(clierr.Failed,
				"choose another name for the setup: metadata.name, or kcpctl import --name",
				"%s is kcp-operator's, which still needs it, and the setup has an object of the same name; nothing "+
					"was changed", it.Ref)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	if err := g.Runtime.Belong(ctx, taken); err != nil {
		return err
	}
	if err := g.inheritedReleases(ctx, taken); err != nil || g.Options.ReplaceAuthorities {
		return err
	}
	const hint = "take them over first: kcpctl certs import --from-cluster; to use different authorities, pass --" +
		record.FlagReplaceAuthorities +
		": all existing kubeconfigs, certificates and service-account tokens then stop working"
	theirs, err := g.Runtime.Inherited(ctx)
	if err != nil {
		return clierr.New(clierr.Failed, hint,
			"Service %s is kcp-operator's, and its authorities cannot be compared; nothing was changed: %w",
			taken[0].Name, err)
	}
	if missing := notInherited(theirs, g.desired.Loaded); len(missing) > 0 {
		return clierr.New(clierr.Failed, hint,
			"Service %s is kcp-operator's, and %s does not hold the PKI of its installation; nothing "+
				"was changed\n    %s",
			taken[0].Name, g.Runtime.Store(), strings.Join(missing, "\n    "))
	}
	return nil
}

// inheritedReleases refuses components that would take the Services of servers over whose release they must not follow:
// both use the same data.
func (g *guard) inheritedReleases(ctx context.Context, taken []plan.Item) error {
	if g.Options.AllowReleaseChange {
		return nil
	}
	var errs []error
	for _, it := range taken {
		c := g.Topology.Component(it.Component)
		if c.Custom != nil {
			continue // the tag of its image is not a release of kcp
		}
		from, err := g.Runtime.InheritedRelease(ctx, it)
		if err != nil {
			return err
		}
		if refused, _ := refusedRelease(c.Kind, from, c.Version); refused != "" {
			errs = append(errs, clierr.New(clierr.Failed,
				"set spec.version, or image.tag of the component, to "+from+" or the next minor release, and upgrade "+
					"further after kcpctl import --finish; to do it anyway: "+risk.ReleaseChange.Flag(),
				"%s takes over from servers of kcp-operator, which run kcp %s: %s; nothing was changed", c.ID(), from,
				refused))
		}
	}
	return errors.Join(errs...)
}

// notInherited returns which authorities and keys of an installation another one does not trust.
func notInherited(theirs, ours *pki.State) []string {
	var out []string
	have, want := ours.Fingerprints(), theirs.Fingerprints()
	for _, rotation := range pki.AllRotations() {
		for _, f := range want[rotation.Key()].All() {
			if !slices.Contains(have[rotation.Key()].All(), f) {
				out = append(out, fmt.Sprintf("%s: it does not have %s", rotation, record.Short(f)))
			}
		}
	}
	return out
}
