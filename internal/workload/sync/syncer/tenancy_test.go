package syncer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

const (
	quotas   = "api/v1/resourcequotas"
	limits   = "api/v1/limitranges"
	policies = "apis/networking.k8s.io/v1/networkpolicies"
)

// The objects of a template.
const (
	quota     = `{apiVersion: v1, kind: ResourceQuota, metadata: {name: team, labels: {a: b}}, spec: {hard: {pods: "5"}}}`
	limit     = `{apiVersion: v1, kind: LimitRange, metadata: {name: team}, spec: {limits: [{type: Container, default: {memory: 1Gi}}]}}`
	isolation = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: workspace}, spec: {podSelector: {}, ingress: [` +
		`{from: [{namespaceSelector: {matchLabels: {workloads.kcp.dev/workspace: $(WORKSPACE)}}}]}]}}`
)

// tenancy sets spec.tenancy of the Cluster.
func (s *sides) tenancy(objects ...string) {
	s.Helper()
	s.kcp.Apply(s, compute, clusters, `{metadata: {name: c1}, spec: {tenancy: {objects: [`+strings.Join(objects, ", ")+`]}}}`)
}

func (s *sides) spec(cluster, path, name string) string {
	o := s.below(cluster, path, name)
	if o == nil {
		return ""
	}
	raw, err := json.Marshal(o.Object["spec"])
	require.NoError(s, err)
	return string(raw)
}

// templated returns the writes of objects of templates.
func (s *sides) templated() []string {
	return slices.DeleteFunc(s.physical.Writes(), func(w string) bool {
		return !strings.Contains(w, quotas) && !strings.Contains(w, limits) && !strings.Contains(w, policies)
	})
}

// The cluster has said nothing: a namespace has what its users wrote, and nothing else.
func TestNothingIsWrittenIntoANamespaceByDefault(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	require.Equal(t, []string{"POST api/v1/namespaces /" + namespaceOf("1a"), "PATCH apis/apps/v1/deployments " + namespaceOf("1a") + "/web"},
		slices.Compact(s.physical.Writes()))
}

// A namespace has the objects of the template before the first object of its users, each for its workspace.
func TestTheTemplateComesFirst(t *testing.T) {
	s := newSides(t)
	s.tenancy(quota, isolation)
	s.start()
	for _, workspace := range []string{"1a", "2b"} {
		s.leaf(workspace, "web", "{replicas: 1}")
		s.eventually(func() bool { return s.condition(workspace, "web") == "True Synced: " }, "synced")
		require.JSONEq(t, `{"hard":{"pods":"5"}}`, s.spec(workspace, quotas, "team"))
		require.JSONEq(t, `{"podSelector":{},"ingress":[{"from":[{"namespaceSelector":{"matchLabels":{"workloads.kcp.dev/workspace":"`+workspace+`"}}}]}]}`,
			s.spec(workspace, policies, "workspace"))
		ns := namespaceOf(workspace)
		require.Equal(t, []string{"POST api/v1/namespaces /" + ns, "PATCH " + quotas + " " + ns + "/team", "PATCH " + policies + " " + ns + "/workspace",
			"PATCH apis/apps/v1/deployments " + ns + "/web"}, slices.Compact(s.physical.Writes()))
	}
	require.Equal(t, map[string]string{"a": "b", api.LabelManagedBy: api.ManagerSyncer, api.LabelTemplate: "demo-x"},
		s.below("1a", quotas, "team").GetLabels(), "it is not an orphan, and keeps no namespace")
}

// What is added to the template comes into namespaces that exist, and what is removed from it is removed from them.
// Objects of others are not touched, whatever their labels are.
func TestTheTemplateChanges(t *testing.T) {
	s := newSides(t)
	s.tenancy(quota)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	for name, label := range map[string]string{"admins": "app.kubernetes.io/managed-by: kcpctl-syncer", "another": "workloads.kcp.dev/template: demo-y"} {
		s.physical.Apply(t, "", quotas, fmt.Sprintf(`{kind: ResourceQuota, metadata: {name: %s, namespace: %s, labels: {%s}}}`, name, namespaceOf("1a"), label))
	}
	s.tenancy(strings.ReplaceAll(quota, `"5"`, `"6"`), limit)
	s.eventually(func() bool {
		return s.spec("1a", limits, "team") != "" && s.spec("1a", quotas, "team") == `{"hard":{"pods":"6"}}`
	}, "one is added, and one has changed")
	s.tenancy(limit)
	s.eventually(func() bool { return s.below("1a", quotas, "team") == nil }, "removed")
	s.tenancy()
	s.eventually(func() bool { return s.below("1a", limits, "team") == nil }, "the last one is removed")
	require.NotNil(t, s.below("1a", quotas, "admins"))
	require.NotNil(t, s.below("1a", quotas, "another"))
	require.NotNil(t, s.below("1a", deployments, "web"))
}

func (s *sides) clusterWith(objects ...string) *api.Cluster {
	s.Helper()
	c := s.cluster()
	c.Spec.Tenancy = &v1alpha1.Tenancy{}
	for _, text := range objects {
		o := map[string]any{}
		require.NoError(s, yaml.Unmarshal([]byte(text), &o))
		c.Spec.Tenancy.Objects = append(c.Spec.Tenancy.Objects, o)
	}
	return c
}

// What others change is restored, and what is as it should be needs no request, also if the cluster adds defaults.
func TestTheTemplateIsRestored(t *testing.T) {
	s := newSides(t)
	s.space("1a", "deployments")
	k := s.listed()
	k.tenancy.see(s.clusterWith(quota, isolation))
	defer k.tenancy.live.Stop()
	settled := func() bool {
		s.physical.Writes()
		k.tenancy.fillAll(t.Context())
		return len(s.templated()) == 0
	}
	s.eventually(func() bool { k.tenancy.fillAll(t.Context()); return s.spec("1a", policies, "workspace") != "" }, "written")
	s.eventually(settled, "written once")
	s.physical.Delete("", policies, namespaceOf("1a"), "workspace")
	s.physical.Apply(t, "", quotas, fmt.Sprintf(`{metadata: {name: team, namespace: %s}, spec: {hard: {pods: "1000000"}}}`, namespaceOf("1a")))
	s.eventually(func() bool {
		k.tenancy.fillAll(t.Context())
		return s.spec("1a", policies, "workspace") != "" && s.spec("1a", quotas, "team") == `{"hard":{"pods":"5"}}`
	}, "restored")
	s.eventually(settled, "settled")
}

// While objects of the template cannot be listed, or before the Cluster is known, none is missing, and none is
// removed.
func TestNothingIsRemovedWithoutALook(t *testing.T) {
	s := newSides(t)
	s.space("1a", "deployments")
	s.physical.Apply(t, "", quotas, fmt.Sprintf(`{kind: ResourceQuota, metadata: {name: team, namespace: %s, labels: {workloads.kcp.dev/template: demo-x}}}`, namespaceOf("1a")))
	k := s.listed()
	defer k.tenancy.live.Stop()
	k.cluster.Store(nil)
	k.tenancy.fillAll(t.Context())
	require.NotNil(t, s.below("1a", quotas, "team"), "the Cluster is not known")
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/limitranges") {
			return http.StatusForbidden, "no"
		}
		return 0, ""
	})
	k.tenancy.see(s.clusterWith())
	s.eventually(func() bool {
		return len(k.tenancy.live.Failures()) > 0 && k.tenancy.live.Classes(api.TemplateResources()[0])[""] == 1
	}, "read in part")
	k.tenancy.fillAll(t.Context())
	require.NotNil(t, s.below("1a", quotas, "team"), "not everything is listed")
	s.physical.Refuse(nil)
	s.eventually(func() bool { k.tenancy.fillAll(t.Context()); return s.below("1a", quotas, "team") == nil }, "the template has none")
}

// What the administrator has demanded would not hold: nothing of the workspace runs, and its users see why.
func TestNothingIsWrittenIntoANamespaceWithoutItsTemplate(t *testing.T) {
	s := newSides(t)
	s.tenancy(quota, isolation)
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "networkpolicies/workspace") {
			return http.StatusForbidden, `User "syncer" cannot patch resource "networkpolicies"`
		}
		return 0, ""
	})
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "web"), "False Denied: NetworkPolicy workspace in spec.tenancy.objects of Cluster c1 cannot be written")
	}, "refused")
	require.Nil(t, s.below("1a", deployments, "web"))
	s.physical.Refuse(nil)
	s.leaf("1a", "web", "{replicas: 2}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "granted")
}

// An object of someone else has the name of one in the template. It is not replaced, and neither is it taken for it.
func TestTheTemplateDoesNotReplaceObjects(t *testing.T) {
	s := newSides(t)
	s.space("1a", "deployments")
	s.physical.Apply(t, "", quotas, fmt.Sprintf(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: team, namespace: %s}, spec: {hard: {pods: "7"}}}`, namespaceOf("1a")))
	s.tenancy(quota)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool {
		return strings.HasPrefix(s.condition("1a", "web"), "False NameCollision: spec.tenancy.objects of Cluster c1 has ResourceQuota team for each namespace")
	}, "refused")
	require.JSONEq(t, `{"hard":{"pods":"7"}}`, s.spec("1a", quotas, "team"))
	require.Nil(t, s.below("1a", deployments, "web"))
}

// A user writes a NetworkPolicy with the name of one in the template.
func TestAUserDoesNotReplaceTheTemplate(t *testing.T) {
	s := newSides(t)
	s.tenancy(isolation)
	s.kcp.Apply(t, compute, clusters, `{metadata: {name: c1}, status: {apis: [{group: networking.k8s.io, resource: networkpolicies, version: v1, state: Published}]}}`)
	s.start()
	s.kcp.Apply(t, "1a", policies, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: workspace--c1, namespace: shop,
		labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: workspace}}, spec: {podSelector: {}}}`)
	s.eventually(func() bool {
		leaf := s.kcp.Get("1a", policies, "shop", "workspace--c1")
		return strings.HasPrefix(leaf.GetAnnotations()[api.AnnotationSyncError], api.ReasonNameCollision)
	}, "refused")
	require.Contains(t, s.spec("1a", policies, "workspace"), "namespaceSelector")
}

// An administrator gives a namespace a quota and default limits. Pods that are refused are in the status of the object,
// what the cluster adds stays, and so do the objects of the administrator.
func TestANamespaceWithTheQuotaOfAnAdministrator(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 2, template: {spec: {containers: [{name: web, image: web}]}}}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	guards := map[string]string{"resourcequotas": "kind: ResourceQuota, spec: {hard: {pods: 0}}",
		"limitranges": "kind: LimitRange, spec: {limits: [{type: Container, default: {cpu: 1}}]}"}
	for resource, text := range guards {
		s.physical.Apply(s, "", "api/v1/"+resource, fmt.Sprintf("{apiVersion: v1, metadata: {name: team, namespace: %s}, %s}", namespaceOf("1a"), text))
	}
	s.physical.Apply(s, "", deployments, fmt.Sprintf(`
metadata: {name: web, namespace: %s, annotations: {policy: strict}}
spec: {progressDeadlineSeconds: 600}
status: {replicas: 0, unavailableReplicas: 2, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: "exceeded quota: team"}]}`,
		namespaceOf("1a")))
	s.eventually(func() bool {
		c := api.ConditionIn(s.kcp.Get("1a", deployments, "shop", "web--c1"), "ReplicaFailure")
		return c != nil && c.Message == "exceeded quota: team" && s.condition("1a", "web") == "True Synced: "
	}, "its user sees why there are no pods")
	s.leaf("1a", "web", "{replicas: 3}")
	s.eventually(func() bool { return field(s.below("1a", deployments, "web"), "spec", "replicas") == "3" }, "scaled")
	require.Equal(t, "600", field(s.below("1a", deployments, "web"), "spec", "progressDeadlineSeconds"))
	require.Equal(t, "strict", s.below("1a", deployments, "web").GetAnnotations()["policy"])
	for resource := range guards {
		require.Equal(t, int64(1), s.below("1a", "api/v1/"+resource, "team").GetGeneration(), resource)
	}
}
