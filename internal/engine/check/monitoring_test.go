package check

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/monitoring"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Alerts name a command that explains a check which exists.
func TestRunbooksOfAlerts(t *testing.T) {
	s := monitoring.Subject{RenewBy: time.Unix(1, 0)}
	for _, k := range topology.Kinds() {
		s.Components = append(s.Components, topology.IDOf(k, "a"))
	}
	for _, group := range monitoring.Rules(s) {
		for _, rule := range group["rules"].([]map[string]any) {
			runbook := rule["annotations"].(map[string]any)["runbook"].(string)
			id, ok := strings.CutPrefix(runbook, "kcpctl explain ")
			require.True(t, ok, runbook)
			_, ok = Find(id)
			require.True(t, ok, runbook)
		}
	}
}
