package syncer

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
func TestJobsKeepTheirNodeSelector(t *testing.T) {
	const jobs = "apis/batch/v1/jobs"
	s := newSides(t)
	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {apis: [
		{group: apps, resource: deployments, version: v1, state: Published}, {group: batch, resource: jobs, version: v1, state: Published}]}}`)
	job := func(suspend bool, selector string) {
		s.kcp.Apply(t, "1a", jobs, fmt.Sprintf(`{apiVersion: batch/v1, kind: Job,
			metadata: {name: once--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: once}},
			spec: {suspend: %v, template: {spec: {nodeSelector: %s}}}}`, suspend, selector))
	}
	nodes := func(path, name string) string {
		selector, _, _ := unstructured.NestedStringMap(s.below("1a", path, name).Object, "spec", "template", "spec", "nodeSelector")
		return fmt.Sprint(selector)
	}
	s.start()
	job(false, "{arch: arm64}")
	s.leaf("1a", "web", "{template: {spec: {nodeSelector: {arch: arm64}}}}")
	s.eventually(func() bool { return s.below("1a", jobs, "once") != nil && s.below("1a", deployments, "web") != nil }, "synced")

	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, spec: {tenancy: {pods: {nodeSelector: {pool: tenants}}}}}`)
	s.eventually(func() bool { return nodes(deployments, "web") == "map[arch:arm64 pool:tenants]" }, "pods move to the nodes")
	job(true, "{arch: arm64}")
	s.eventually(func() bool { return field(s.below("1a", jobs, "once"), "spec", "suspend") == "true" }, "the Job can change")
	require.Equal(t, "map[arch:arm64]", nodes(jobs, "once"))
	job(true, "{arch: amd64}")
	s.eventually(func() bool { return nodes(jobs, "once") == "map[arch:amd64 pool:tenants]" }, "a change of the user is not hidden")
}

// kcp stores a quantity that would take all memory of an API server. No cluster gets it. The reason is in the status,
// as is what a cluster says, as far as a user can read it.
func TestAHugeQuantityIsNotSynced(t *testing.T) {
	s := newSides(t)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/long") {
			return http.StatusUnprocessableEntity, strings.Repeat("x", 100000)
		}
		return 0, ""
	})
	s.start()
	s.leaf("1a", "web", `{template: {spec: {containers: [{name: a, resources: {limits: {memory: "1e1000000000"}}}]}}}`)
	s.eventually(func() bool {
		return s.condition("1a", "web") == "False Invalid: spec.template.spec.containers[0].resources.limits.memory is a quantity "+
			"that no API server can read, and cluster c1 does not get it: correct it"
	}, "it is refused")
	require.Nil(t, s.below("1a", deployments, "web"))
	s.leaf("1a", "web", `{template: {spec: {containers: [{name: a, resources: {limits: {memory: 1Gi}}}]}}}`)
	s.eventually(func() bool { return s.below("1a", deployments, "web") != nil }, "it is corrected")

	s.leaf("1a", "long", "{replicas: 1}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("1a", "long"), "False Invalid: ") }, "the cluster refuses it")
	require.Less(t, len(s.condition("1a", "long")), 5000)
}

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
