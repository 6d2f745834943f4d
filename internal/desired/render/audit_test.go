package render_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
)

// jsonOf returns an object as JSON.
func jsonOf(t *testing.T, objects []render.Object, kind, name string) string {
	t.Helper()
	i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetName() == name && o.GetKind() == kind })
	require.GreaterOrEqual(t, i, 0, name)
	text, err := json.Marshal(objects[i].Object)
	require.NoError(t, err)
	return string(text)
}

// Shards and the servers of their virtual workspaces record requests as the setup says, or as their own shard says.
func TestAudit(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  audit:
    policy: {rules: [{level: Metadata, verbs: [create]}]}
    log: {mode: batch, batchMaxWait: 1s, batchThrottleQPS: 0.5, truncateMaxEventSize: 1024}
    webhook: {secret: collector, mode: blocking, initialBackoff: 5s}
  shards:
  - {name: alpha, audit: {policy: {configMap: policy}}}
  virtualWorkspaces:
  - {name: main, shard: root}
  - {name: alpha, shard: alpha, extraArgs: [--audit-log-maxage=3]}
`)
	const dir = "/etc/kcp/config/"
	audit := func(object string) (out []string) {
		for _, arg := range argsOf(t, objects, object) {
			if strings.HasPrefix(arg, "--audit-") {
				out = append(out, strings.TrimPrefix(arg, "--audit-"))
			}
		}
		return out
	}
	all := []string{
		"policy-file=" + dir + "audit-policy.yaml",
		"log-path=-", "log-mode=batch", "log-batch-max-wait=1s", "log-batch-throttle-qps=0.5", "log-truncate-enabled=true",
		"log-truncate-max-event-size=1024",
		"webhook-config-file=" + dir + "audit-webhook.kubeconfig", "webhook-mode=blocking", "webhook-initial-backoff=5s",
	}
	require.Equal(t, all, audit("demo-root"))
	require.Equal(t, all, audit("demo-vw-main"))
	require.Equal(t, []string{all[0], "log-path=-"}, audit("demo-shard-alpha"))
	require.Equal(t, []string{all[0], "log-path=-", "log-maxage=3"}, audit("demo-vw-alpha"))
	require.Empty(t, audit("demo-front-proxy-main"))

	for _, name := range []string{"demo-root", "demo-vw-main"} {
		require.Contains(t, jsonOf(t, objects, "ConfigMap", name+"-config"),
			`{"audit-policy.yaml":"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  verbs:\n  - create\n"}`)
		require.Contains(t, jsonOf(t, objects, "Deployment", name),
			`{"secret":{"items":[{"key":"kubeconfig","path":"config/audit-webhook.kubeconfig"}],"name":"collector"}}`)
	}
	for _, name := range []string{"demo-shard-alpha", "demo-vw-alpha"} {
		require.Contains(t, jsonOf(t, objects, "Deployment", name),
			`{"configMap":{"items":[{"key":"policy.yaml","path":"config/audit-policy.yaml"}],"name":"policy"}}`)
	}
}
