package deploy

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// restarts reports whether an object describes the pods of a component that the run restarts.
func (p *preparation) restarts(o render.Object) bool {
	return plan.HasPods(o.GetKind()) && slices.Contains(p.Options.Restart, o.Component)
}

// restart changes the objects whose pods the run restarts. All other rules of a run then apply to a restart, too: its
// order, the checks of each component, and the canaries.
func (p *preparation) restart() {
	for i, o := range p.objects {
		if p.restarts(o) {
			p.objects[i].Unstructured = plan.Restart(o.Unstructured, p.began)
		}
	}
}

// mayRestart refuses to restart what does not exist: only up creates components.
func (p *preparation) mayRestart(pl *plan.Plan) error {
	for _, it := range pl.Items {
		if it.Action == plan.Create && plan.HasPods(it.Kind) && slices.Contains(p.Options.Restart, it.Component) {
			return clierr.New(clierr.Failed, "deploy it with kcpctl up",
				"%s does not exist, so %s cannot be restarted; nothing was changed", it.Ref, it.Component)
		}
	}
	return nil
}
