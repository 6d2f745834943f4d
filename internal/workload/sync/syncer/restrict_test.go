package syncer

import (
	"testing"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Pods do not pass by the scheduler, and run on the nodes of the Cluster. Other rules are in the cluster.
func TestRestrict(t *testing.T) {
	nodes := map[string]string{"pool": "tenants"}
	for _, c := range []struct {
		name    string
		nodes   map[string]string
		pod     string
		refused string
		// want is the pod spec, if it changes.
		want string
	}{
		{"nothing", nil, `{containers: [{name: a}], nodeSelector: {arch: arm64}}`, "", ""},
		{"a priority and a toleration", nil, `{priorityClassName: high, tolerations: [{operator: Exists}]}`, "", ""},
		{"a node", nil, `{nodeName: n1}`, "nodeName n1", ""},
		{"a node, whatever is permitted", nodes, `{nodeName: n1}`, "nodeName n1", ""},
		{"a volume", nil, `{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {volumeName: pv1}}}}]}`, "volumeName pv1 in spec.volumes", ""},
		{"nodes", nodes, `{containers: []}`, "", `{containers: [], nodeSelector: {pool: tenants}}`},
		{"nodes and others", nodes, `{nodeSelector: {arch: arm64, pool: tenants}}`, "", `{nodeSelector: {arch: arm64, pool: tenants}}`},
		{"other nodes", nodes, `{nodeSelector: {pool: control}}`, "nodeSelector pool=control", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for kind, wrap := range map[string]func(spec string) string{
				"Deployment": func(s string) string {
					return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: ` + s + `}}}`
				},
				"CronJob": func(s string) string {
					return `{apiVersion: batch/v1, kind: CronJob, metadata: {name: web}, spec: {jobTemplate: {spec: {template: {spec: ` + s + `}}}}}`
				},
			} {
				if c.want == "" {
					c.want = c.pod
				}
				got := parse(t, wrap(c.pod))
				refused := restrict("c1", c.nodes, got)
				if c.refused != "" {
					require.NotNil(t, refused, kind)
					require.Equal(t, api.ReasonNotAllowed, refused.reason)
					require.Contains(t, refused.message, c.refused)
					continue
				}
				require.Nil(t, refused, kind)
				require.Equal(t, parse(t, wrap(c.want)).Object, got.Object)
			}
		})
	}
	refused := restrict("c1", nil, parse(t,
		`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {template: {spec: {}}, volumeClaimTemplates: [{spec: {volumeName: pv1}}]}}`))
	require.ErrorContains(t, refused, "volumeName pv1 in spec.volumeClaimTemplates")
}

// What a cluster makes of a template must not look like an object of the syncer.
func TestTemplatesHaveNoMarksOfTheSyncer(t *testing.T) {
	const forged = `metadata: {labels: {app: web, workloads.kcp.dev/setup: demo-x}, annotations: {workloads.kcp.dev/leaf: "2b|shop/web"}}`
	for where, spec := range map[string]string{
		"the pod template":          `{template: {` + forged + `, spec: {}}}`,
		"spec.volumeClaimTemplates": `{template: {spec: {}}, volumeClaimTemplates: [{` + forged + `}]}`,
		"spec.volumes":              `{template: {spec: {volumes: [{ephemeral: {volumeClaimTemplate: {` + forged + `}}}]}}}`,
	} {
		refused := restrict("c1", nil, parse(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: `+spec+`}`))
		require.NotNil(t, refused, where)
		require.Equal(t, "workloads.kcp.dev/setup in the labels of "+where+" is not permitted in cluster c1: remove it", refused.message)
	}
	refused := restrict("c1", nil, parse(t, `{apiVersion: v1, kind: Pod, metadata: {labels: {workloads.kcp.dev/setup: demo-x}}, spec: {}}`))
	require.Nil(t, refused, "it is an object of the syncer")
}
