package syncer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

const (
	quotas      = "api/v1/resourcequotas"
	limits      = "api/v1/limitranges"
	policies    = "apis/networking.k8s.io/v1/networkpolicies"
	nodesPath   = "api/v1/nodes"
	isGuardPath = "/" + guardName
)

// tenancy changes the tenancy of the Cluster.
func (s *sides) tenancy(yaml string) {
	s.Helper()
	s.kcp.Apply(s, compute, clusters, `{metadata: {name: c1}, spec: {tenancy: `+yaml+`}}`)
}

func (s *sides) guardSpec(path string) string {
	o := s.below("1a", path, guardName)
	if o == nil {
		return ""
	}
	raw, err := json.Marshal(o.Object["spec"])
	require.NoError(s, err)
	return string(raw)
}

const isolatedSpec = `{"egress":[{"to":[{"namespaceSelector":{}},{"ipBlock":{"cidr":"0.0.0.0/0","except":["169.254.169.254/32"]}},` +
	`{"ipBlock":{"cidr":"::/0","except":["fd00:ec2::254/128"]}}]}],` +
	`"ingress":[{"from":[{"namespaceSelector":{"matchLabels":{"workloads.kcp.dev/setup":"demo-x","workloads.kcp.dev/workspace":"1a"}}},` +
	`{"namespaceSelector":{"matchExpressions":[{"key":"workloads.kcp.dev/setup","operator":"DoesNotExist"}]}}%s]}],` +
	`"podSelector":{},"policyTypes":["Ingress","Egress"]}`

// Before the first object is written into a namespace, the namespace is confined, also when the Cluster says nothing.
func TestNamespacesAreConfinedByDefault(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	require.Equal(t, fmt.Sprintf(isolatedSpec, ""), s.guardSpec(policies), "pods of nodes without ranges cannot be told from clients: closed")
	require.JSONEq(t, `{"hard":{"pods":"1k","services.loadbalancers":"20"}}`, s.guardSpec(quotas))
	require.Empty(t, s.guardSpec(limits))
	guard := s.below("1a", policies, guardName)
	require.Equal(t, map[string]string{api.LabelManagedBy: api.ManagerSyncer}, guard.GetLabels(), "it is not an orphan")
	require.Empty(t, guard.GetAnnotations())
}

// Clients from outside of the cluster may connect: all addresses but those of pods.
func TestRangesOfPodsAreNotOutside(t *testing.T) {
	s := newSides(t)
	node := func(name, ranges string) {
		s.physical.Apply(t, "", nodesPath, `{apiVersion: v1, kind: Node, metadata: {name: `+name+`}, spec: {podCIDRs: `+ranges+`}}`)
	}
	node("n1", `[10.244.0.0/24, "fd00:1::/64"]`)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	outside := func(v4 string) string {
		return fmt.Sprintf(isolatedSpec,
			`,{"ipBlock":{"cidr":"0.0.0.0/0","except":["`+v4+`"]}},{"ipBlock":{"cidr":"::/0","except":["fd00:1::/64"]}}`)
	}
	require.Equal(t, outside("10.244.0.0/24"), s.guardSpec(policies))
	node("n2", "[10.244.1.0/24]")
	s.eventually(func() bool { return s.guardSpec(policies) == outside("10.244.0.0/23") }, "a node is added")
}

func TestMerged(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"10.0.1.0/24 10.0.0.0/24": "10.0.0.0/23",
		"10.0.1.0/24 10.0.2.0/24": "10.0.1.0/24 10.0.2.0/24",
		"10.0.3.0/24 10.0.2.0/24 10.0.0.0/24 10.0.1.0/24":    "10.0.0.0/22",
		"10.0.0.0/8 10.0.1.0/24":                             "10.0.0.0/8",
		"10.0.0.0/24 10.0.0.0/24 fd00::/64":                  "10.0.0.0/24 fd00::/64",
		"fd00:0:0:1::/64 fd00::/64 192.168.0.0/25 1.0.0.0/8": "1.0.0.0/8 192.168.0.0/25 fd00::/63",
	} {
		var prefixes []netip.Prefix
		for _, text := range strings.Fields(in) {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		var got []string
		for _, p := range merged(prefixes) {
			got = append(got, p.String())
		}
		require.Equal(t, want, strings.Join(got, " "), in)
	}
}

func TestTheTenancyOfTheClusterApplies(t *testing.T) {
	s := newSides(t)
	s.tenancy(`{quota: {pods: "5"}, isolation: None, limitRange: [{type: Container, default: {memory: 1Gi}}]}`)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	require.JSONEq(t, `{"hard":{"pods":"5"}}`, s.guardSpec(quotas))
	require.JSONEq(t, `{"limits":[{"type":"Container","default":{"memory":"1Gi"}}]}`, s.guardSpec(limits))
	require.Empty(t, s.guardSpec(policies))

	s.physical.Apply(t, "", quotas, fmt.Sprintf(
		`{metadata: {name: admins, namespace: %s, labels: {app.kubernetes.io/managed-by: kcpctl-syncer}}}`, namespaceOf("1a")))
	s.tenancy(`{quota: null, limitRange: null, isolation: Workspace}`)
	s.eventually(func() bool {
		return s.guardSpec(policies) != "" && s.guardSpec(limits) == "" && strings.Contains(s.guardSpec(quotas), `"1k"`)
	}, "the defaults, and what is no longer set is removed")
	s.leaf("1a", "plain", "{template: {spec: {priorityClassName: high}}}")
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "plain"), "False NotAllowed: priorityClassName high")
	}, "refused")
	require.Nil(t, s.below("1a", deployments, "plain"))
	s.tenancy(`{priorityClasses: [high]}`)
	s.eventually(func() bool { return s.condition("1a", "plain") == "True Synced: " }, "the administrator permits it, and it is tried at once")
	require.NotNil(t, s.below("1a", quotas, "admins"))
}

// What others change is restored, and what is as it should be needs no request.
func TestGuardsAreRestored(t *testing.T) {
	s := newSides(t)
	s.space("1a", "deployments")
	s.physical.Apply(t, "", spaces, `{apiVersion: v1, kind: Namespace, metadata: {name: `+namespaceOf("1a")+`}}`)
	k := s.listed()
	k.see(clusterWith(nil))
	s.eventually(func() bool { k.makePlan(); return k.guards.plan != nil && k.guards.live.Listed() }, "listed")
	defer k.guards.stop()
	settled := func() bool {
		s.physical.Writes()
		k.checkGuards(t.Context())
		return len(s.physical.Writes()) == 0
	}
	s.eventually(settled, "written once")
	s.physical.Delete("", policies, namespaceOf("1a"), guardName)
	s.physical.Apply(t, "", quotas, fmt.Sprintf(
		`{metadata: {name: %s, namespace: %s}, spec: {hard: {pods: "1000000"}}}`, guardName, namespaceOf("1a")))
	s.eventually(func() bool {
		k.checkGuards(t.Context())
		return s.guardSpec(policies) != "" && strings.Contains(s.guardSpec(quotas), `"1k"`)
	}, "restored")
	s.eventually(settled, "settled")
	none := clusterWith(&api.Tenancy{Isolation: api.IsolationNone})
	k.see(none)
	s.eventually(func() bool { k.checkGuards(t.Context()); return s.guardSpec(policies) == "" }, "removed")
	require.NotEmpty(t, s.guardSpec(quotas))
}

// Isolation is promised: without the right to write it, nothing runs.
func TestNothingIsWrittenIntoANamespaceThatCannotBeConfined(t *testing.T) {
	s := newSides(t)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "networkpolicies"+isGuardPath) {
			return http.StatusForbidden, `User "syncer" cannot patch resource "networkpolicies"`
		}
		return 0, ""
	})
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "web"), "False Denied: the syncer may not create and patch networkpolicies.networking.k8s.io")
	}, "refused")
	require.Nil(t, s.below("1a", deployments, "web"))
	s.physical.Refuse(nil)
	s.leaf("1a", "web", "{replicas: 2}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "granted")
}

// A syncer that cannot list nodes yet does not close namespaces for clients: it waits.
func TestNothingIsConfinedBeforeNodesAreListed(t *testing.T) {
	s := newSides(t)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			return http.StatusInternalServerError, "not now"
		}
		return 0, ""
	})
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return strings.HasPrefix(s.condition("1a", "web"), "False Retrying: confine namespace") }, "reported")
	require.Empty(t, s.guardSpec(policies))
	require.Nil(t, s.below("1a", deployments, "web"))
	s.physical.Refuse(nil)
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "nodes are listed")
}

// An administrator gives a namespace a quota and default limits. Pods that are refused are in the status of the object,
// what the cluster adds stays, and so do the objects of the administrator.
func TestANamespaceWithTheQuotaOfAnAdministrator(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 2, template: {spec: {containers: [{name: web, image: web}]}}}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	guards := map[string]string{"resourcequotas": "{hard: {pods: 0}}", "limitranges": "{limits: [{type: Container, default: {cpu: 1}}]}"}
	for resource, spec := range guards {
		s.physical.Apply(s, "", "api/v1/"+resource, fmt.Sprintf("{apiVersion: v1, metadata: {name: team, namespace: %s}, spec: %s}", namespaceOf("1a"), spec))
	}
	s.physical.Apply(s, "", deployments, fmt.Sprintf(`
metadata: {name: web, namespace: %s, annotations: {policy: strict}}
spec: {progressDeadlineSeconds: 600}
status: {replicas: 0, unavailableReplicas: 2, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: "exceeded quota: team"}]}`,
		namespaceOf("1a")))
	s.eventually(func() bool {
		all, _, _ := unstructured.NestedSlice(s.kcp.Get("1a", deployments, "shop", "web--c1").Object, "status", "conditions")
		return find(all, "ReplicaFailure")["message"] == "exceeded quota: team" && s.condition("1a", "web") == "True Synced: "
	}, "its user sees why there are no pods")
	s.leaf("1a", "web", "{replicas: 3}")
	s.eventually(func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "3" }, "scaled")
	require.Equal(t, "600", field(s.below("1a", deployments, "web"), "spec", "progressDeadlineSeconds"))
	require.Equal(t, "strict", s.below("1a", deployments, "web").GetAnnotations()["policy"])
	for resource := range guards {
		require.Equal(t, int64(1), s.below("1a", "api/v1/"+resource, "team").GetGeneration(), resource)
	}
}
