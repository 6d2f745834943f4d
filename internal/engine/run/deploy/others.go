package deploy

import (
	"context"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// noteOthers tells the user that another user has applied another setup file last, if the run changes anything: the
// user's file may be an older one.
func (p *preparation) noteOthers(ctx context.Context, changes *plan.Plan) error {
	if p.again || p.quiet || p.Setup == nil || changes.Empty() {
		return nil
	}
	history, err := p.Runtime.History(ctx)
	if err != nil || len(history) == 0 {
		return err
	}
	last := history[len(history)-1]
	if last.Own || plan.SameSetup(last.Setup, p.Setup) {
		return nil
	}
	older := ""
	before := false
	for _, r := range history[:len(history)-1] {
		before = before || r.Own
		if plan.SameSetup(r.Setup, p.Setup) {
			older = fmt.Sprintf("; this file is that of revision %d, which is older", r.Number)
		}
	}
	if !before && older == "" {
		return nil
	}
	p.Note(fmt.Sprintf("%s has applied another setup file since, at %s (revision %d)%s: kcpctl diff --revision %d "+
		"shows what is different",
		last.User, last.Time.UTC().Format(time.RFC3339), last.Number, older, last.Number))
	return nil
}
