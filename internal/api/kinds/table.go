package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Groups of the kinds in the table.
const (
	apps        = "apps"
	autoscaling = "autoscaling"
	batch       = "batch"
	networking  = "networking.k8s.io"
	policy      = "policy"
)

// The paths of pod templates.
var (
	template    = []string{"spec", "template"}
	jobTemplate = []string{"spec", "jobTemplate", "spec", "template"}
)

// table has a row for each kind.
var table = []Kind{
	{
		GroupKind: kind(apps, "Deployment"), Resource: "deployments", Spread: Divide, Template: template, Owns: true,
		Status: fields(Sum, "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas",
			"terminatingReplicas"),
	},
	{
		GroupKind: kind(apps, "ReplicaSet"), Resource: "replicasets", Spread: Divide, Template: template, Owns: true,
		Status: fields(Sum, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
			"terminatingReplicas"),
	},
	{
		GroupKind: kind("", "ReplicationController"), Resource: "replicationcontrollers", Spread: Divide,
		Template: template, Owns: true,
		Status: fields(Sum, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
	},
	{
		// Two clusters would both have a web-0.
		GroupKind: kind(apps, "StatefulSet"), Resource: "statefulsets", Spread: Single, Divisible: true,
		Template: template, Owns: true,
		Data: TemplateData,
		Status: slices.Concat(fields(Sum, "replicas", "readyReplicas", "currentReplicas", "updatedReplicas",
			"availableReplicas"),
			fields(Same, "currentRevision", "updateRevision")),
	},
	{
		GroupKind: kind(apps, "DaemonSet"), Resource: "daemonsets", Spread: Duplicate, Template: template, Owns: true,
		Status: fields(Sum, "currentNumberScheduled", "desiredNumberScheduled", "numberAvailable",
			"numberMisscheduled", "numberReady",
			"numberUnavailable", "updatedNumberScheduled"),
	},
	{
		GroupKind: kind(batch, "Job"), Resource: "jobs", Spread: Single, Template: template, Owns: true, Finishes: true,
		// A cluster that deletes a finished Job by itself would get it again, and run it again.
		Placed: [][]string{{"spec", "ttlSecondsAfterFinished"}},
		Status: slices.Concat(fields(Sum, "active", "succeeded", "failed", "ready", "terminating"),
			fields(Earliest, "startTime"),
			fields(Latest, "completionTime")),
	},
	{
		GroupKind: kind(batch, "CronJob"), Resource: "cronjobs", Spread: Single, Template: jobTemplate, Owns: true,
		NoConditions: true,
		Status:       slices.Concat(fields(Union, "active"), fields(Latest, "lastScheduleTime", "lastSuccessfulTime")),
	},
	{GroupKind: kind("", "Pod"), Resource: "pods", Spread: Single, Template: []string{},
		Placed: [][]string{{"spec", "nodeName"}}},
	{
		GroupKind: kind("", "Service"), Resource: "services", Spread: Follow, Selects: Labels,
		SelectorPath: []string{"spec", "selector"},
		Placed: [][]string{
			{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "healthCheckNodePort"}, {"spec", "ipFamilies"},
			{"spec", "ports[]", "nodePort"},
		},
		Status: fields(Union, "loadBalancer.ingress"),
	},
	{
		GroupKind: kind(networking, "Ingress"), Resource: "ingresses", Spread: Follow, NoConditions: true,
		Status: fields(Union, "loadBalancer.ingress"),
	},
	{
		GroupKind: kind(networking, "NetworkPolicy"), Resource: "networkpolicies", Spread: Follow, NoStatus: true,
		Selects: SelectorOrAll, SelectorPath: []string{"spec", "podSelector"}, Guards: true,
	},
	{
		GroupKind: kind(policy, "PodDisruptionBudget"), Resource: "poddisruptionbudgets", Spread: Follow,
		Selects: Selector, SelectorPath: []string{"spec", "selector"},
		// Without a pod that may be unavailable, no node of a cluster could be drained.
		Divided: []Divided{{Field: "minAvailable"}, {Field: "maxUnavailable", Each: true}},
		Status:  fields(Sum, "currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"),
	},
	{
		GroupKind: kind(autoscaling, "HorizontalPodAutoscaler"), Resource: "horizontalpodautoscalers", Spread: Follow,
		TargetPath: []string{"spec", "scaleTargetRef"},
		Status:     slices.Concat(fields(Sum, "currentReplicas", "desiredReplicas"), fields(Latest, "lastScaleTime")),
	},
	{GroupKind: kind("", "ConfigMap"), Resource: "configmaps", Spread: Follow, NoStatus: true},
	{GroupKind: kind("", "Secret"), Resource: "secrets", Spread: Follow, NoStatus: true},
	{
		GroupKind: kind("", "ServiceAccount"), Resource: "serviceaccounts", Spread: Follow, NoStatus: true,
		Placed: [][]string{{"secrets"}}, // the Secrets with its tokens are those of the cluster
	},
	{
		GroupKind: kind("", "PersistentVolumeClaim"), Resource: "persistentvolumeclaims",
		Spread: Follow, Data: AlwaysData,
		Placed: [][]string{{"spec", "volumeName"}},
	},
}

var everywhere = []Name{
	{schema.GroupResource{Resource: "serviceaccounts"}, DefaultAccount},
	{schema.GroupResource{Resource: "configmaps"}, "kube-root-ca.crt"},
}

// clusterScoped are the resources of Kubernetes that are not in namespaces, by group.
var clusterScoped = map[string][]string{
	"":                             {"namespaces", "nodes", "persistentvolumes", "componentstatuses"},
	"admissionregistration.k8s.io": {"*"},
	"apiextensions.k8s.io":         {"customresourcedefinitions"},
	"apiregistration.k8s.io":       {"apiservices"},
	"authentication.k8s.io":        {"tokenreviews", "selfsubjectreviews"},
	"authorization.k8s.io":         {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles"},
	"flowcontrol.apiserver.k8s.io": {"*"},
	"internal.apiserver.k8s.io":    {"*"},
	"networking.k8s.io":            {"ingressclasses", "ipaddresses", "servicecidrs"},
	"node.k8s.io":                  {"*"},
	"rbac.authorization.k8s.io":    {"clusterroles", "clusterrolebindings"},
	"resource.k8s.io":              {"deviceclasses", "resourceslices", "devicetaintrules"},
	"scheduling.k8s.io":            {"priorityclasses"},
	"storage.k8s.io": {"csidrivers", "csinodes", "storageclasses", "volumeattachments",
		"volumeattributesclasses"},
	"storagemigration.k8s.io":   {"*"},
	"gateway.networking.k8s.io": {"gatewayclasses"},
	"snapshot.storage.k8s.io":   {"volumesnapshotclasses", "volumesnapshotcontents"},
	"policy.networking.k8s.io":  {"*"},
	"cert-manager.io":           {"clusterissuers"},
}

// ClusterScoped reports whether a resource is known not to be in namespaces. Objects of workspaces run in namespaces of
// a cluster, so such an API cannot be published.
func ClusterScoped(gr schema.GroupResource) bool {
	all := clusterScoped[gr.Group]
	return slices.Contains(all, gr.Resource) || slices.Contains(all, "*")
}

func kind(group, name string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: name} }

func fields(op Operation, paths ...string) []Field {
	var all []Field
	for _, p := range paths {
		all = append(all, Field{p, op})
	}
	return all
}
