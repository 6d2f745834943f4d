package deploy

import (
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// FlagPruneData is the flag with the components whose objects in workspaces are deleted although they hold data.
const FlagPruneData = "prune-data"

// Kept returns a remark for each component with objects in workspaces that the setup no longer has, and that a run
// keeps because they hold data, or because they are on a physical cluster that does not answer.
func Kept(p *plan.Plan) []string {
	var ids []topology.ID
	of := map[topology.ID][]string{}
	for _, it := range p.Kept() {
		if of[it.Component] == nil {
			ids = append(ids, it.Component)
		}
		of[it.Component] = append(of[it.Component], it.String())
	}
	var out []string
	for _, id := range ids {
		if id.Kind() == topology.Physical {
			out = append(out, fmt.Sprintf("%s: the cluster does not answer, so these objects stay there: %s", id,
				gather.Few(of[id], gather.Listed, ", ")))
			continue
		}
		out = append(out, fmt.Sprintf("%s: the setup no longer has %s; kept, because data would be lost. To delete "+
			"it with its data, pass --%s %s",
			id, gather.Few(of[id], gather.Listed, ", "), FlagPruneData, id))
	}
	return out
}

// prunes refuses a component of --prune-data of which nothing is deleted: it is misspelled, or the setup file still has
// it.
func (p *preparation) prunes(pl *plan.Plan) error {
	for _, id := range p.Options.PruneData {
		if !slices.ContainsFunc(pl.Items, func(it plan.Item) bool {
			return it.Component == id && it.Workspace != "" && (it.Action == plan.Delete || it.Action == plan.Unknown)
		}) {
			return p.Fail(stepPlan, clierr.New(clierr.BadInput,
				"remove it from the setup file first; kcpctl up names what is kept",
				"--%s %s: nothing of it is kept, so nothing would be deleted; nothing was changed", FlagPruneData, id))
		}
	}
	return nil
}
