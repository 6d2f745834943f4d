package monitoring

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// all is a setup with components of all kinds.
var all = Subject{
	Setup: "demo", Installation: "demo-x7k2m9qd", Namespace: "kcp", Components: ofKinds(topology.Kinds()...),
	RenewBy: time.Date(2027, 11, 5, 0, 0, 0, 0, time.UTC), Certificate: "demo-root-server",
}

// ofKinds returns a component of each of some kinds.
func ofKinds(kinds ...topology.Kind) (out []topology.ID) {
	for _, k := range kinds {
		out = append(out, topology.IDOf(k, "a"))
	}
	return out
}

// foreign are the metrics that Prometheus makes itself, or gets from the kubelet and from kube-state-metrics.
var foreign = []string{"up", "container_memory_working_set_bytes", "kube_pod_container_resource_limits"}

var (
	metric  = regexp.MustCompile(`([a-z_]+)\{`)
	keyword = regexp.MustCompile(`\b(by|without|on|ignoring) \([^)]*\)`)
	call    = regexp.MustCompile(`[a-z_]+\(`)
	word    = regexp.MustCompile(`[a-z_]{2,}`)
)

// metrics returns the metrics of an expression. Each has labels.
func metrics(t *testing.T, expr string) []string {
	var out []string
	for _, m := range metric.FindAllStringSubmatch(expr, -1) {
		out = append(out, m[1])
	}
	rest := regexp.MustCompile(`[a-z_]+\{[^}]*\}(\[[^\]]*\])?`).ReplaceAllString(keyword.ReplaceAllString(expr, ""), "")
	rest = call.ReplaceAllString(strings.NewReplacer(" or ", " ", "$expected", "", "max ", "", "min ", "", "sum ", "").Replace(rest), "")
	require.NotRegexp(t, word, rest, "a metric without labels in %s", expr)
	return out
}

// Prometheus keeps each metric that alerts and the dashboard use, and no metric without a use, but some basic ones.
func TestMetricsAreKept(t *testing.T) {
	used := []string{"process_start_time_seconds"}
	for _, a := range alerts {
		used = append(used, metrics(t, a.expr)...)
	}
	for _, p := range panels {
		used = append(used, metrics(t, p.expr)...)
	}
	slices.Sort(used)
	used = slices.DeleteFunc(slices.Compact(used), func(name string) bool { return slices.Contains(foreign, name) })
	require.Equal(t, used, slices.Sorted(slices.Values(kept)))
	require.Regexp(t, "^("+Kept()+")$", "kcp_workspace_count")
	require.NotRegexp(t, "^("+Kept()+")$", "apiserver_request_duration_seconds_bucket")
}

// Each alert is complete, about the installation only, and leads to a check of kcpctl.
func TestRules(t *testing.T) {
	groups := Rules(all)
	require.Len(t, groups, 1)
	rules := groups[0]["rules"].([]map[string]any)
	require.Len(t, rules, len(alerts)+1)
	var names []string
	for _, r := range rules {
		names = append(names, r["alert"].(string))
		text := fmt.Sprint(r)
		require.NotContains(t, strings.ReplaceAll(strings.ReplaceAll(text, "$value", ""), "$labels", ""), "$")
		require.Regexp(t, `kcp_installation="demo-x7k2m9qd"|namespace="kcp"|vector\(time`, r["expr"])
		require.Regexp(t, `^kcpctl explain KCP[0-9]{3}$`, r["annotations"].(map[string]any)["runbook"])
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(names))), len(rules), "no name twice")
	require.Contains(t, fmt.Sprint(rules), fmt.Sprintf("vector(time()) > %d", all.RenewBy.Unix()))
}

// A cluster has no alerts about kinds of components that it does not have.
func TestRulesOfSomeKinds(t *testing.T) {
	s := all
	s.Components = ofKinds(topology.FrontProxy)
	text := fmt.Sprint(Rules(s))
	require.Contains(t, text, "KcpFrontProxyDown")
	require.Contains(t, text, `or label_replace(vector(0), "kcp_component", "front-proxy/a", "", "")) == 0`)
	for _, other := range []string{"KcpShardDown", "Etcd", "KcpCertificateEnds", "KcpClusterNotReady", "KcpComponentDown"} {
		require.NotContains(t, text, other)
	}
}

func TestDashboard(t *testing.T) {
	text, err := Dashboard(all)
	require.NoError(t, err)
	var d struct {
		UID, Title string
		Panels     []struct {
			Title       string
			GridPos     struct{ X, Y, W, H int }
			Datasource  struct{ Type, UID string }
			FieldConfig struct{ Defaults struct{ Unit string } }
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	require.Equal(t, "kcp-x7k2m9qd", d.UID)
	require.Equal(t, []struct{ Name, Type, Query string }{{"datasource", "datasource", "prometheus"}}, d.Templating.List)
	require.Len(t, d.Panels, len(panels))
	titles, cells := map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Title)
		require.False(t, titles[p.Title], p.Title)
		titles[p.Title] = true
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.Equal(t, "prometheus ${datasource}", p.Datasource.Type+" "+p.Datasource.UID, p.Title)
		require.Positive(t, p.GridPos.W*p.GridPos.H, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, cells[[2]int{x, y}], "%s overlaps another panel", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		require.Contains(t, p.Targets[0].Expr, `{kcp_installation="demo-x7k2m9qd"`)
		require.NotContains(t, strings.ReplaceAll(p.Targets[0].Expr, "$__rate_interval", ""), "$")
	}
	s := all
	s.Components = ofKinds(topology.RootShard, topology.FrontProxy)
	text, err = Dashboard(s)
	require.NoError(t, err)
	require.NotContains(t, string(text), "etcd_")
}
