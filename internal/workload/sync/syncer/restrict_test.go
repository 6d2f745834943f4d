package syncer

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

func clusterWith(t *api.Tenancy) *api.Cluster {
	return &api.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: api.ClusterSpec{Tenancy: t}}
}

// What a pod may ask for depends on the tenancy of the Cluster. By default, it is nothing that concerns nodes or other
// pods.
func TestRestrict(t *testing.T) {
	lists := &api.Tenancy{PriorityClasses: []string{"batch"}, TolerationKeys: []string{"gpu"}}
	selector := &api.Tenancy{NodeSelector: map[string]string{"pool": "tenants"}}
	for _, c := range []struct {
		name    string
		tenancy *api.Tenancy
		pod     string
		refused string
		// want is the pod spec, if it changes.
		want string
	}{
		{"nothing", nil, `{containers: [{name: a}], nodeSelector: {arch: arm64}}`, "", ""},
		{"a node", nil, `{nodeName: n1}`, "nodeName n1", ""},
		{"a node, whatever is permitted", lists, `{nodeName: n1}`, "nodeName n1", ""},
		{"a priority", nil, `{priorityClassName: system-node-critical}`, "add system-node-critical to spec.tenancy.priorityClasses of Cluster c1", ""},
		{"another priority", lists, `{priorityClassName: high}`, "add high to spec.tenancy.priorityClasses", ""},
		{"a permitted priority", lists, `{priorityClassName: batch}`, "", ""},
		{"a toleration", nil, `{tolerations: [{key: gpu, operator: Exists}]}`, "add gpu to spec.tenancy.tolerationKeys", ""},
		{"a permitted toleration", lists, `{tolerations: [{key: gpu, operator: Exists}]}`, "", ""},
		{"one of two", lists, `{tolerations: [{key: gpu, operator: Exists}, {key: node-role.kubernetes.io/control-plane}]}`, "control-plane", ""},
		{"all taints", lists, `{tolerations: [{operator: Exists}]}`, "tolerates all taints", ""},
		{"a volume", nil, `{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {volumeName: pv1}}}}]}`, "volumeName pv1 in spec.volumes", ""},
		{"nodes", selector, `{containers: []}`, "", `{containers: [], nodeSelector: {pool: tenants}}`},
		{"nodes and others", selector, `{nodeSelector: {arch: arm64, pool: tenants}}`, "", `{nodeSelector: {arch: arm64, pool: tenants}}`},
		{"other nodes", selector, `{nodeSelector: {pool: control}}`, "nodeSelector pool=control", ""},
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
				got, refused := restrict(clusterWith(c.tenancy), parse(t, wrap(c.pod)))
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
	_, refused := restrict(clusterWith(nil), parse(t,
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
		_, refused := restrict(clusterWith(nil), parse(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: `+spec+`}`))
		require.NotNil(t, refused, where)
		require.Equal(t, "workloads.kcp.dev/setup in the labels of "+where+" is not permitted in cluster c1: remove it", refused.message)
	}
	_, refused := restrict(clusterWith(nil), parse(t, `{apiVersion: v1, kind: Pod, metadata: {labels: {workloads.kcp.dev/setup: demo-x}}, spec: {}}`))
	require.Nil(t, refused, "it is an object of the syncer")
}

// A NetworkPolicy of a user adds to ours: it must not permit the metadata of nodes.
func TestPoliciesOfUsersDoNotPermitTheMetadata(t *testing.T) {
	policy := func(egress string) *unstructured.Unstructured {
		return parse(t, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, spec: {egress: `+egress+`}}`)
	}
	everything := `[{to: [{namespaceSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0, except: [169.254.169.254/32]}}, {ipBlock: {cidr: "::/0", except: ["fd00:ec2::254/128"]}}]}]`
	for in, want := range map[string]string{
		`[{}]`:                        everything,
		`[{to: [{podSelector: {}}]}]`: `[{to: [{podSelector: {}}]}]`,
		`[{to: [{ipBlock: {cidr: 169.254.0.0/16}}]}]`:                                      `[{to: [{ipBlock: {cidr: 169.254.0.0/16, except: [169.254.169.254/32]}}]}]`,
		`[{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [169.254.169.254/32, 10.0.0.0/8]}}]}]`: `[{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [169.254.169.254/32, 10.0.0.0/8]}}]}]`,
		`[{to: [{ipBlock: {cidr: 169.254.169.254/32}}]}]`:                                  `[]`,
		`[{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]`:                                          `[{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]`,
	} {
		got, refused := restrict(clusterWith(nil), policy(in))
		require.Nil(t, refused)
		require.Equal(t, policy(want).Object, got.Object, in)
	}
	for _, cidr := range []string{"0169.254.169.254/32", "169.254.169.254/032", "::ffff:169.254.169.254/128"} {
		_, refused := restrict(clusterWith(nil), policy(`[{to: [{ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: "`+cidr+`"}}]}]`))
		require.NotNil(t, refused, cidr)
		require.Equal(t, api.ReasonInvalid, refused.reason)
		require.Contains(t, refused.message, cidr)
	}
	got, _ := restrict(clusterWith(&api.Tenancy{Isolation: api.IsolationNone, Quota: &corev1.ResourceList{}}), policy(`[{}]`))
	require.Equal(t, policy(`[{}]`).Object, got.Object, "nothing is restricted")
}
