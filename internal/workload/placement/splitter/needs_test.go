package splitter_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

func ref(resource, name string) splitter.Ref {
	return splitter.Ref{GroupResource: schema.ParseGroupResource(resource), Name: name}
}

const (
	policies    = "networkpolicies.networking.k8s.io"
	budgets     = "poddisruptionbudgets.policy"
	autoscalers = "horizontalpodautoscalers.autoscaling"
)

func placed(t *testing.T, name, podLabels string, clusters ...string) splitter.Placed {
	t.Helper()
	o := object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {template: {metadata: {labels: "+podLabels+"}, spec: {}}}}")
	o.SetName(name)
	return splitter.Placed{Ref: ref("deployments.apps", name), Object: o, Clusters: clusters}
}

// What selects pods, or scales them, is where they are. A NetworkPolicy that selects nothing is wherever the namespace
// is.
func TestWhatProtectsAWorkloadFollowsIt(t *testing.T) {
	workloads := []splitter.Placed{
		placed(t, "web", "{app: web, tier: front}", "c1", "c2"), placed(t, "db", "{app: db}", "c2", "c3"),
	}
	policy := func(selector string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: " + selector + "}}"
	}
	budget := func(spec string) string {
		return "{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: " + spec + "}"
	}
	scaler := func(kind, name string) string {
		return fmt.Sprintf("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: %s, name: %s}}}", kind, name)
	}
	const everywhere, web, db = "c1 c2 c3", "c1 c2", "c2 c3"
	for _, tc := range []struct{ resource, text, want string }{
		{policies, policy("{}"), everywhere},
		{policies, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {}}", everywhere},
		{policies, policy("{matchLabels: {app: web}}"), web},
		{policies, policy("{matchLabels: {app: absent}}"), everywhere},
		{policies, policy("{matchExpressions: [{key: app, operator: In, values: [db, x]}]}"), db},
		{policies, policy("{matchExpressions: [{key: tier, operator: Exists}]}"), web},
		{policies, policy("{matchExpressions: [{key: tier, operator: DoesNotExist}]}"), db},
		{policies, policy("{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: NotIn, values: [front]}]}"), everywhere},
		{policies, policy("{matchExpressions: [{key: tier, operator: Wrong}]}"), everywhere},
		{budgets, budget("{selector: {matchLabels: {app: db}}}"), db},
		{budgets, budget("{selector: {matchLabels: {app: absent}}}"), ""},
		{budgets, budget("{selector: {}}"), everywhere},
		{budgets, budget("{}"), ""},
		{autoscalers, scaler("Deployment", "web"), web},
		{autoscalers, scaler("StatefulSet", "web"), ""},
		{autoscalers, scaler("Deployment", "absent"), ""},
	} {
		at := ref(tc.resource, "o")
		needs := splitter.FindNeeds(workloads, map[splitter.Ref]*unstructured.Unstructured{at: object(t, tc.text)})
		require.Equal(t, tc.want, clustersOf(needs[at]), tc.text)
	}
}

func clustersOf(needed map[string][]string) string {
	out := ""
	for _, c := range []string{"c1", "c2", "c3"} {
		if len(needed[c]) > 0 {
			out += " " + c
		}
	}
	if out == "" {
		return ""
	}
	return out[1:]
}

// The labels of the pods that an operator makes of its objects are not known.
func TestPoliciesGuardPodsOfUnknownKinds(t *testing.T) {
	widget := splitter.Placed{Ref: ref("widgets.example.com", "w"), Object: object(t, "{apiVersion: example.com/v1, kind: Widget}"), Clusters: []string{"c3"}}
	at := ref(policies, "o")
	needs := splitter.FindNeeds([]splitter.Placed{placed(t, "web", "{app: web}", "c1"), widget}, map[splitter.Ref]*unstructured.Unstructured{
		at: object(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {matchLabels: {app: web}}}}"),
	})
	require.Equal(t, "c1 c3", clustersOf(needs[at]))
}

// Every pod that names no account has the default one, with its pull secrets. Without any, the one of the cluster is
// enough.
func TestPullSecretsOfTheDefaultAccount(t *testing.T) {
	workloads := []splitter.Placed{placed(t, "web", "{}", "c1")}
	account, secret := ref("serviceaccounts", "default"), ref("secrets", "pull")
	all := map[splitter.Ref]*unstructured.Unstructured{
		account: object(t, "{apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: pull}]}"), secret: object(t, "{apiVersion: v1, kind: Secret}"),
	}
	needs := splitter.FindNeeds(workloads, all)
	require.Equal(t, "c1", clustersOf(needs[account]))
	require.Equal(t, "c1", clustersOf(needs[secret]))
	all[account] = object(t, "{apiVersion: v1, kind: ServiceAccount, secrets: [{name: token}]}")
	require.Empty(t, splitter.FindNeeds(workloads, all))
}

// A ServiceAccount whose place a user has chosen brings its Secrets, but no Services without selectors, and no
// NetworkPolicies.
func TestAnAccountThatIsScheduledBringsItsSecrets(t *testing.T) {
	account := object(t, "{apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: pull}]}")
	needs := splitter.FindNeeds([]splitter.Placed{{Ref: ref("serviceaccounts", "sa"), Object: account, Clusters: []string{"c2"}}},
		map[splitter.Ref]*unstructured.Unstructured{
			ref("serviceaccounts", "sa"): account, ref("secrets", "pull"): object(t, "{apiVersion: v1, kind: Secret}"),
			ref("services", "manual"): object(t, "{apiVersion: v1, kind: Service}"),
			ref(policies, "all"):      object(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {}}}"),
		})
	require.Equal(t, splitter.Needs{ref("secrets", "pull"): {"c2": {"serviceaccounts/sa"}}}, needs)
}

// The work grows with the objects of a namespace, not with pairs of them.
func TestFindNeedsIsLinear(t *testing.T) {
	build := func(n int) ([]splitter.Placed, map[splitter.Ref]*unstructured.Unstructured) {
		var workloads []splitter.Placed
		all := map[splitter.Ref]*unstructured.Unstructured{}
		for i := range n {
			name := fmt.Sprint("w", i)
			workloads = append(workloads, placed(t, name, "{app: "+name+"}", "c1", "c2"))
			all[ref("services", name)] = object(t, "{apiVersion: v1, kind: Service, spec: {selector: {app: "+name+"}}}")
			all[ref(policies, name)] = object(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {matchLabels: {app: "+name+"}}}}")
		}
		return workloads, all
	}
	cost := func(n int) float64 {
		workloads, all := build(n)
		return testing.AllocsPerRun(1, func() { require.Len(t, splitter.FindNeeds(workloads, all), 2*n) })
	}
	require.Less(t, cost(1000), 15*cost(100))
}

func TestScaled(t *testing.T) {
	hpa := func(name, more string) *unstructured.Unstructured {
		return object(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: "+name+more+"}, "+
			"spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 2, maxReplicas: 9}}")
	}
	root := placed(t, "web", "{}").Object
	require.Equal(t, "a", splitter.Scaled(root, []*unstructured.Unstructured{hpa("b", ""), hpa("a", "")}).GetName())
	require.Nil(t, splitter.Scaled(root, nil))
	require.Nil(t, splitter.Scaled(placed(t, "db", "{}").Object, []*unstructured.Unstructured{hpa("a", "")}))
	require.Nil(t, splitter.Scaled(root, []*unstructured.Unstructured{hpa("a", ", labels: {workloads.kcp.dev/cluster: c1}")}), "a leaf scales in its cluster")
	require.Nil(t, splitter.Scaled(root, []*unstructured.Unstructured{hpa("a", ", deletionTimestamp: '2026-01-01T00:00:00Z'")}))
	require.Equal(t, splitter.Bounds{Min: 2, Max: 9}, splitter.BoundsOf(hpa("a", "")))
	require.Equal(t, splitter.Bounds{Min: 1, Max: 1}, splitter.BoundsOf(object(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: 1}")))
}

func TestBoundsAreDivided(t *testing.T) {
	for _, tc := range []struct {
		bounds   splitter.Bounds
		replicas map[string]int64
		want     map[string]splitter.Bounds
	}{
		{splitter.Bounds{Min: 4, Max: 10}, map[string]int64{"c1": 3, "c2": 3}, map[string]splitter.Bounds{"c1": {2, 5}, "c2": {2, 5}}},
		{splitter.Bounds{Min: 10, Max: 20}, map[string]int64{"c1": 9, "c2": 1}, map[string]splitter.Bounds{"c1": {9, 18}, "c2": {1, 2}}},
		{splitter.Bounds{Min: 3, Max: 11}, map[string]int64{"c1": 98, "c2": 1, "c3": 1}, map[string]splitter.Bounds{"c1": {1, 9}, "c2": {1, 1}, "c3": {1, 1}}},
		{splitter.Bounds{Min: 1, Max: 1}, map[string]int64{"c1": 2, "c2": 2}, map[string]splitter.Bounds{"c1": {1, 1}, "c2": {1, 1}}},
		{splitter.Bounds{Min: 0, Max: 5}, map[string]int64{"c1": 2, "c2": 2}, map[string]splitter.Bounds{"c1": {0, 3}, "c2": {0, 2}}},
		{splitter.Bounds{Min: 2, Max: 5}, map[string]int64{"c1": 4, "c2": 0}, map[string]splitter.Bounds{"c1": {2, 5}}},
		{splitter.Bounds{Min: 2, Max: 5}, nil, map[string]splitter.Bounds{}},
		{splitter.Bounds{Min: 1 << 40, Max: 1 << 62}, map[string]int64{"c1": 1 << 62, "c2": 1 << 62, "c3": 1 << 62, "c4": 1 << 62}, map[string]splitter.Bounds{
			"c1": {1 << 38, 1 << 60}, "c2": {1 << 38, 1 << 60}, "c3": {1 << 38, 1 << 60}, "c4": {1 << 38, 1 << 60}}},
	} {
		require.Equal(t, tc.want, tc.bounds.Divide(tc.replicas))
	}
}

// Sums hold whenever each cluster can have at least one, and no cluster has fewer at most than at least.
func FuzzBounds(f *testing.F) {
	f.Add(int64(3), int64(9), int64(1), int64(5), int64(7))
	f.Fuzz(func(t *testing.T, least, most, a, b, c int64) {
		replicas := map[string]int64{"a": a % 1000, "b": b % 1000, "c": c % 1000}
		bounds := splitter.Bounds{Min: max(0, least%10_000)}
		bounds.Max = max(bounds.Min, most%10_000)
		sum, clusters := splitter.Bounds{}, int64(0)
		for name, share := range bounds.Divide(replicas) {
			require.Positive(t, replicas[name])
			require.GreaterOrEqual(t, share.Max, share.Min)
			require.GreaterOrEqual(t, share.Min, min(1, bounds.Min))
			require.Positive(t, share.Max)
			sum.Min += share.Min
			sum.Max += share.Max
			clusters++
		}
		if clusters > 0 && bounds.Min >= clusters {
			require.Equal(t, bounds, sum)
		}
	})
}

// An autoscaler has the replicas in its cluster. Nothing corrects them.
func TestReplicasThatAnAutoscalerSets(t *testing.T) {
	root, n := object(t, web), int64(3)
	want, err := splitter.Leaves(root, map[string]splitter.Share{"c1": {Replicas: &n, Scaled: true}})
	require.NoError(t, err)
	with := func(n int64, status bool) *unstructured.Unstructured {
		o := want[0].DeepCopy()
		require.NoError(t, unstructured.SetNestedField(o.Object, n, "spec", "replicas"))
		if status {
			require.NoError(t, unstructured.SetNestedField(o.Object, n, "status", "replicas"))
		}
		return o
	}
	require.Empty(t, splitter.Compare(root, want, []*unstructured.Unstructured{with(8, false)}).Correct)
	p := splitter.PlacementOf(map[string]*unstructured.Unstructured{"c1": func() *unstructured.Unstructured {
		o := with(3, false)
		require.NoError(t, unstructured.SetNestedField(o.Object, int64(8), "status", "replicas"))
		return o
	}()})
	require.Equal(t, int64(8), *p["c1"].Replicas)

	applied := func(leaf, live *unstructured.Unstructured) int64 {
		desired := leaf.DeepCopy()
		kept := splitter.KeepReplicas(leaf, desired, live)
		require.Equal(t, kept, !equality.Semantic.DeepEqual(leaf, desired))
		n, _, _ := unstructured.NestedInt64(desired.Object, "spec", "replicas")
		return n
	}
	require.Equal(t, int64(8), applied(want[0], with(8, true)))
	require.Equal(t, int64(0), applied(with(0, false), with(8, true)), "an autoscaler rests at zero, so the user can stop the workload")
	require.Equal(t, int64(3), applied(want[0], with(0, true)), "and start it")
	plain := want[0].DeepCopy()
	plain.SetAnnotations(nil)
	require.Equal(t, int64(3), applied(plain, with(8, true)))
}

func TestSurplus(t *testing.T) {
	leaf := object(t, `{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: {
		containers: [{name: a, env: [{name: X}]}, {name: b}], volumes: [{name: v}]}}}}}}`)
	is := object(t, `{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: {
		containers: [{name: proxy}, {name: a, image: d, env: [{name: X, value: "1"}, {name: LD_PRELOAD}]}, {name: b}],
		initContainers: [{name: i}], volumes: [{name: v, emptyDir: {}}], tolerations: [{key: k}]}}}}}}`)
	before := is.DeepCopy()
	patch := splitter.Surplus(is, leaf)
	require.Equal(t, object(t, `{kind: P, spec: {jobTemplate: {spec: {template: {spec: {
		containers: [{name: a, image: d, env: [{name: X, value: "1"}]}, {name: b}], initContainers: []}}}}}}`).Object["spec"], patch["spec"])
	require.Equal(t, before, is, "it is shared")
	require.Nil(t, splitter.Surplus(leaf, leaf))
	widget := object(t, "{apiVersion: example.com/v1, kind: Widget, spec: {containers: [{name: a}]}}")
	require.Nil(t, splitter.Surplus(widget, object(t, "{apiVersion: example.com/v1, kind: Widget}")))
}

// A root that is scaled has the sums of what its clusters report.
func TestStatusesOfWhatFollows(t *testing.T) {
	for _, tc := range []struct{ head, c1, c2, want string }{
		{
			"apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler",
			"{observedGeneration: 2, currentReplicas: 3, desiredReplicas: 4, lastScaleTime: '2026-01-01T00:00:01Z', currentMetrics: [x]}",
			"{observedGeneration: 2, currentReplicas: 1, desiredReplicas: 2, lastScaleTime: '2026-01-01T00:00:02Z', conditions: [{type: ScalingLimited, status: 'True'}]}",
			"{observedGeneration: 7, currentReplicas: 4, desiredReplicas: 6, lastScaleTime: '2026-01-01T00:00:02Z', " +
				"conditions: [{type: ScalingLimited, status: 'True', message: ''}]}",
		},
		{
			"apiVersion: policy/v1, kind: PodDisruptionBudget",
			"{observedGeneration: 2, currentHealthy: 3, desiredHealthy: 2, disruptionsAllowed: 1, expectedPods: 3, disruptedPods: {}}",
			"{observedGeneration: 2, currentHealthy: 1, desiredHealthy: 1, disruptionsAllowed: 0, expectedPods: 2}",
			"{observedGeneration: 7, currentHealthy: 4, desiredHealthy: 3, disruptionsAllowed: 1, expectedPods: 5}",
		},
	} {
		root := object(t, "{"+tc.head+", metadata: {generation: 7}}")
		got := splitter.Aggregate(root, map[string]*unstructured.Unstructured{"c1": leaf(t, tc.head, "7", tc.c1), "c2": leaf(t, tc.head, "7", tc.c2)})
		require.Equal(t, object(t, "{"+tc.head+", status: "+tc.want+"}").Object["status"], got)
	}
	require.True(t, kinds.HasConditions(schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}))
	require.False(t, kinds.HasConditions(schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}))
}

// A budget keeps what it says over all clusters. Each cluster may lose a pod if the budget says how many may be lost.
func TestBudgetsAreDivided(t *testing.T) {
	for _, tc := range []struct {
		spec     string
		replicas map[string]int64
		want     map[string]map[string]int64
	}{
		{"{minAvailable: 3}", map[string]int64{"c1": 2, "c2": 2}, map[string]map[string]int64{"c1": {"minAvailable": 2}, "c2": {"minAvailable": 1}}},
		{"{minAvailable: 1}", map[string]int64{"c1": 1, "c2": 1, "c3": 1}, map[string]map[string]int64{"c1": {"minAvailable": 1}, "c2": {"minAvailable": 0}, "c3": {"minAvailable": 0}}},
		{"{minAvailable: 8}", map[string]int64{"c1": 9, "c2": 1, "c3": 0}, map[string]map[string]int64{"c1": {"minAvailable": 7}, "c2": {"minAvailable": 1}}},
		{"{maxUnavailable: 1}", map[string]int64{"c1": 2, "c2": 2}, map[string]map[string]int64{"c1": {"maxUnavailable": 1}, "c2": {"maxUnavailable": 1}}},
		{"{maxUnavailable: 4}", map[string]int64{"c1": 6, "c2": 2}, map[string]map[string]int64{"c1": {"maxUnavailable": 3}, "c2": {"maxUnavailable": 1}}},
		{"{maxUnavailable: 0}", map[string]int64{"c1": 2, "c2": 2}, map[string]map[string]int64{"c1": {"maxUnavailable": 0}, "c2": {"maxUnavailable": 0}}},
		{`{maxUnavailable: "25%"}`, map[string]int64{"c1": 2, "c2": 2}, nil},
	} {
		o := object(t, "{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: "+tc.spec+"}")
		require.Equal(t, tc.want != nil, splitter.HasNumbers(o), tc.spec)
		if tc.want != nil {
			require.Equal(t, tc.want, splitter.DivideNumbers(o, tc.replicas), tc.spec)
		}
	}
	require.False(t, splitter.HasNumbers(object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {minAvailable: 3}}")))
}
