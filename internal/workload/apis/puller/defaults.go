package puller

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// fieldDefault is a field of a type, with dots between the fields that lead to it, and its default as JSON.
type fieldDefault struct{ path, value string }

// defaults are what kube-apiserver sets in fields that an object does not have, by type (kubernetes: pkg/apis: the
// files defaults.go). OpenAPI documents only have the defaults that are markers of the types, and these come first.
// A default that depends on another field is left to the cluster, such as imagePullPolicy, or the completions of a Job:
// with one of them set, the cluster would not set the others.
var defaults = map[string][]fieldDefault{
	"apps.v1.DaemonSetSpec": {
		{"revisionHistoryLimit", `10`}, {"updateStrategy", `{"type":"RollingUpdate"}`},
	},
	"apps.v1.DaemonSetUpdateStrategy": {{"type", `"RollingUpdate"`}},
	"apps.v1.DeploymentSpec": {
		{"replicas", `1`}, {"revisionHistoryLimit", `10`}, {"progressDeadlineSeconds", `600`},
		{"strategy", `{"type":"RollingUpdate"}`},
	},
	"apps.v1.DeploymentStrategy":      {{"type", `"RollingUpdate"`}},
	"apps.v1.ReplicaSetSpec":          {{"replicas", `1`}},
	"apps.v1.RollingUpdateDaemonSet":  {{"maxUnavailable", `1`}, {"maxSurge", `0`}},
	"apps.v1.RollingUpdateDeployment": {{"maxUnavailable", `"25%"`}, {"maxSurge", `"25%"`}},
	"apps.v1.StatefulSetSpec": {
		{"replicas", `1`}, {"revisionHistoryLimit", `10`}, {"podManagementPolicy", `"OrderedReady"`},
		{"updateStrategy", `{"type":"RollingUpdate"}`},
		{"persistentVolumeClaimRetentionPolicy", `{"whenDeleted":"Retain","whenScaled":"Retain"}`},
	},
	"apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {
		{"whenDeleted", `"Retain"`}, {"whenScaled", `"Retain"`},
	},
	"apps.v1.StatefulSetUpdateStrategy":          {{"type", `"RollingUpdate"`}},
	"apps.v1.RollingUpdateStatefulSetStrategy":   {{"partition", `0`}},
	"autoscaling.v1.HorizontalPodAutoscalerSpec": {{"minReplicas", `1`}},
	"autoscaling.v2.HorizontalPodAutoscalerSpec": {{"minReplicas", `1`}, {"metrics", cpuAt80Percent}},
	"batch.v1.Job": {{"spec.suspend", `false`}, {"spec.completionMode", `"NonIndexed"`}},
	"batch.v1.PodFailurePolicyOnPodConditionsPattern": {{"status", `"True"`}},
	"batch.v1.CronJobSpec": {
		{"concurrencyPolicy", `"Allow"`}, {"suspend", `false`}, {"successfulJobsHistoryLimit", `3`},
		{"failedJobsHistoryLimit", `1`},
	},
	"core.v1.ConfigMapVolumeSource":     {{"defaultMode", mode0644}},
	"core.v1.Container":                 terminationMessage,
	"core.v1.DownwardAPIVolumeSource":   {{"defaultMode", mode0644}},
	"core.v1.EphemeralContainer":        terminationMessage,
	"core.v1.HTTPGetAction":             {{"path", `"/"`}, {"scheme", `"HTTP"`}},
	"core.v1.ObjectFieldSelector":       {{"apiVersion", `"v1"`}},
	"core.v1.PersistentVolumeClaimSpec": {{"volumeMode", `"Filesystem"`}},
	"core.v1.Pod":                       {{"spec.enableServiceLinks", `true`}},
	"core.v1.PodSpec": {
		{"restartPolicy", `"Always"`}, {"terminationGracePeriodSeconds", `30`}, {"dnsPolicy", `"ClusterFirst"`},
		{"schedulerName", `"default-scheduler"`}, {"securityContext", `{}`},
	},
	"core.v1.Probe": {
		{"timeoutSeconds", `1`}, {"periodSeconds", `10`}, {"successThreshold", `1`}, {"failureThreshold", `3`},
	},
	"core.v1.ProjectedVolumeSource":         {{"defaultMode", mode0644}},
	"core.v1.ReplicationControllerSpec":     {{"replicas", `1`}},
	"core.v1.SecretVolumeSource":            {{"defaultMode", mode0644}},
	"core.v1.ServiceAccountTokenProjection": {{"expirationSeconds", `3600`}},
	"core.v1.ServiceSpec":                   {{"type", `"ClusterIP"`}, {"sessionAffinity", `"None"`}},
	"networking.v1.NetworkPolicyPort":       {{"protocol", `"TCP"`}},
}

// mode0644 is the mode of the files in volumes, in the decimal form of JSON.
const mode0644 = `420`

// cpuAt80Percent are the metrics of an autoscaler without any.
const cpuAt80Percent = `[{"type":"Resource","resource":{"name":"cpu",` +
	`"target":{"type":"Utilization","averageUtilization":80}}}]`

// terminationMessage are the defaults of containers of all kinds.
var terminationMessage = []fieldDefault{
	{"terminationMessagePath", `"/dev/termination-log"`}, {"terminationMessagePolicy", `"File"`},
}

// setDefaults gives the fields of a type the defaults of the table, unless the document has one, or the server does not
// know the field.
func setDefaults(name string, s *apiextensionsv1.JSONSchemaProps) {
	for _, d := range defaults[strings.TrimPrefix(name, "io.k8s.api.")] {
		setDefault(s, strings.Split(d.path, "."), d.value)
	}
}

// setDefault sets the default of a field of a schema.
func setDefault(s *apiextensionsv1.JSONSchemaProps, path []string, value string) {
	field, known := s.Properties[path[0]]
	switch {
	case !known:
		return
	case len(path) > 1:
		setDefault(&field, path[1:], value)
	case field.Default == nil:
		field.Default = &apiextensionsv1.JSON{Raw: []byte(value)}
	}
	s.Properties[path[0]] = field
}
