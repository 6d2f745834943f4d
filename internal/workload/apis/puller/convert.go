package puller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// document has the schemas of an OpenAPI v3 document, by name. They are decoded when they are used: a document has many
// more than one API needs, and decoded ones need ten times the memory.
type document map[string]json.RawMessage

func (d document) decode(name string) (*definition, error) {
	raw, ok := d[name]
	if !ok {
		return nil, nil
	}
	out := &definition{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	return out, nil
}

func (d document) of(gvk schema.GroupVersionKind) string {
	for name, raw := range d {
		var s struct {
			Kinds []groupVersionKindJSON `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(raw, &s) == nil &&
			slices.Contains(s.Kinds, groupVersionKindJSON{gvk.Group, gvk.Version, gvk.Kind}) {
			return name
		}
	}
	return ""
}

type definitions map[string]*definition

// definition is a schema of an OpenAPI v3 document of an API server, as far as such documents use the format.
type definition struct {
	Ref                  string                `json:"$ref"`
	AllOf                []*definition         `json:"allOf"`
	Description          string                `json:"description"`
	Type                 string                `json:"type"`
	Format               string                `json:"format"`
	Pattern              string                `json:"pattern"`
	Default              json.RawMessage       `json:"default"`
	Enum                 []json.RawMessage     `json:"enum"`
	Required             []string              `json:"required"`
	Properties           definitions           `json:"properties"`
	Items                *definition           `json:"items"`
	AdditionalProperties *additionalProperties `json:"additionalProperties"`
	ListType             *string               `json:"x-kubernetes-list-type"`
	ListMapKeys          []string              `json:"x-kubernetes-list-map-keys"`
	MapType              *string               `json:"x-kubernetes-map-type"`
	PatchStrategy        string                `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey        string                `json:"x-kubernetes-patch-merge-key"`
	PreserveUnknown      *bool                 `json:"x-kubernetes-preserve-unknown-fields"`
}

type groupVersionKindJSON struct{ Group, Version, Kind string }

type additionalProperties struct {
	Schema  *definition
	Allowed bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *additionalProperties) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &a.Allowed); err == nil {
		return nil
	}
	a.Allowed = true
	return json.Unmarshal(raw, &a.Schema)
}

const refPrefix = "#/components/schemas/"

// schemaOf returns the schema of a kind, without references and structural, as CustomResourceDefinitions need it.
func (d document) schemaOf(gvk schema.GroupVersionKind) (*apiextensionsv1.JSONSchemaProps, error) {
	name := d.of(gvk)
	if name == "" {
		return nil, unusable("the OpenAPI v3 document of %s has no schema of %s", gvk.GroupVersion(), gvk.Kind)
	}
	c := converter{document: d, within: []string{name}}
	s, err := d.decode(name)
	if err != nil {
		return nil, unusable("schema of %s: %w", gvk, err)
	}
	out, err := c.convert(s)
	if err != nil {
		return nil, unusable("schema of %s: %w", gvk, err)
	}
	setDefaults(name, &out)
	// API servers know and validate the rest of the metadata. A CustomResourceDefinition must not describe it.
	out.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	return &out, nil
}

// converter converts a schema. within are the names of the schemas that contain the current one.
type converter struct {
	document document
	within   []string
}

func (c *converter) convert(d *definition) (apiextensionsv1.JSONSchemaProps, error) {
	if name := d.reference(); name != "" {
		return c.resolve(d, name)
	}
	out := apiextensionsv1.JSONSchemaProps{
		Description: d.Description, Type: d.Type, Format: d.Format, Pattern: d.Pattern, Default: defaultOf(d.Default),
		Required: d.Required, XMapType: d.MapType, XPreserveUnknownFields: d.PreserveUnknown,
	}
	for _, value := range d.Enum {
		out.Enum = append(out.Enum, apiextensionsv1.JSON{Raw: value})
	}
	if d.Type == "" {
		// A structural schema needs a type, or accepts anything.
		if out.XPreserveUnknownFields = new(true); d.Properties != nil {
			out.Type = "object"
			out.XPreserveUnknownFields = nil
		}
	}
	if err := c.object(d, &out); err != nil {
		return out, err
	}
	return out, c.list(d, &out)
}

// reference returns the name of the schema that a schema refers to, also if allOf wraps the reference.
func (d *definition) reference() string {
	ref := d.Ref
	if len(d.AllOf) == 1 {
		ref = d.AllOf[0].Ref
	}
	return strings.TrimPrefix(ref, refPrefix)
}

// resolve converts the schema that d refers to. The description of d takes precedence, because it describes the field.
func (c *converter) resolve(d *definition, name string) (apiextensionsv1.JSONSchemaProps, error) {
	out, known := wellKnown(name)
	switch {
	case known:
	case slices.Contains(c.within, name):
		// A schema that contains itself, such as JSONSchemaProps, cannot be written without references.
		out = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	default:
		target, err := c.document.decode(name)
		if err != nil {
			return out, err
		}
		if target == nil {
			return out, fmt.Errorf("%s refers to %s, which does not exist", c.within[len(c.within)-1], name)
		}
		inner := converter{c.document, append(slices.Clone(c.within), name)}
		if out, err = inner.convert(target); err != nil {
			return out, err
		}
		setDefaults(name, &out)
	}
	if d.Description != "" {
		out.Description = d.Description
	}
	if value := defaultOf(d.Default); value != nil {
		out.Default = value
	}
	return out, nil
}

func (c *converter) object(d *definition, out *apiextensionsv1.JSONSchemaProps) error {
	if d.Properties != nil {
		out.Properties = make(map[string]apiextensionsv1.JSONSchemaProps, len(d.Properties))
	}
	for name, p := range d.Properties {
		converted, err := c.convert(p)
		if err != nil {
			return err
		}
		out.Properties[name] = converted
	}
	if d.AdditionalProperties == nil {
		return nil
	}
	if d.AdditionalProperties.Schema == nil {
		if d.AdditionalProperties.Allowed {
			out.XPreserveUnknownFields = new(true)
		}
		return nil
	}
	converted, err := c.convert(d.AdditionalProperties.Schema)
	out.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &converted}
	return err
}

// list converts the items of a list, and how lists are merged.
func (c *converter) list(d *definition, out *apiextensionsv1.JSONSchemaProps) error {
	if d.Items == nil {
		return nil
	}
	items, err := c.convert(d.Items)
	if err != nil {
		return err
	}
	out.XListType, out.XListMapKeys = merging(d, items.Type == "object")
	for _, key := range out.XListMapKeys {
		// A key of a list of type map has to be required, or to have a default.
		if field, ok := items.Properties[key]; ok && field.Default == nil && !slices.Contains(items.Required, key) {
			items.Required = append(slices.Clone(items.Required), key)
		}
	}
	items.Default = nil
	out.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
	return nil
}

// merging returns the type of a list and its keys for server-side apply, or else for strategic merge patches.
func merging(d *definition, objects bool) (listType *string, keys []string) {
	merge := slices.Contains(strings.Split(d.PatchStrategy, ","), "merge")
	switch {
	case d.ListType != nil:
		return d.ListType, d.ListMapKeys
	case merge && d.PatchMergeKey != "":
		return new("map"), []string{d.PatchMergeKey}
	case merge && !objects:
		return new("set"), nil
	}
	return new("atomic"), nil
}

// defaultOf returns a default that API servers apply. Zero values are not: OpenAPI documents have them for all fields
// of Go that are not pointers, also if the field is required.
func defaultOf(raw json.RawMessage) *apiextensionsv1.JSON {
	for _, zero := range []string{"", "null", "{}", "[]", `""`, "0", "false"} {
		if string(bytes.TrimSpace(raw)) == zero {
			return nil
		}
	}
	return &apiextensionsv1.JSON{Raw: slices.Clone(raw)}
}

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

// quantity is the pattern of a resource.Quantity, as in the CRDs that controller-gen generates.
const quantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// wellKnown returns the schema of types whose JSON differs from their Go type, or which accept anything.
func wellKnown(name string) (apiextensionsv1.JSONSchemaProps, bool) {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	number := apiextensionsv1.JSONSchemaProps{
		XIntOrString: true, AnyOf: []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}},
	}
	short, ok := strings.CutPrefix(name, "io.k8s.")
	if !ok {
		return anything, false
	}
	switch short {
	case "apimachinery.pkg.api.resource.Quantity":
		number.Pattern = quantity
		return number, true
	case "apimachinery.pkg.util.intstr.IntOrString":
		return number, true
	case "apimachinery.pkg.apis.meta.v1.Time", "apimachinery.pkg.apis.meta.v1.MicroTime":
		return apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}, true
	case "apimachinery.pkg.apis.meta.v1.Duration":
		return apiextensionsv1.JSONSchemaProps{Type: "string"}, true
	case "apimachinery.pkg.apis.meta.v1.ObjectMeta", // of templates: labels, annotations and names
		"apimachinery.pkg.apis.meta.v1.FieldsV1",
		"apimachinery.pkg.runtime.RawExtension":
		return anything, true
	case "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON":
		return apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}, true
	}
	return anything, false
}

// columns are the columns that kubectl get prints for built-in APIs: OpenAPI documents do not have them. They can only
// have values of single fields.
var columns = map[schema.GroupResource][]apiextensionsv1.CustomResourceColumnDefinition{
	{Group: "apps", Resource: "deployments"}: {
		column("Ready", "integer", ".status.readyReplicas"), column("Desired", "integer", ".spec.replicas"),
		column("Up-to-date", "integer", ".status.updatedReplicas"),
		column("Available", "integer", ".status.availableReplicas"), age(),
	},
	{Group: "apps", Resource: "statefulsets"}: {
		column("Ready", "integer", ".status.readyReplicas"), column("Desired", "integer", ".spec.replicas"), age(),
	},
	{Group: "apps", Resource: "daemonsets"}: {
		column("Desired", "integer", ".status.desiredNumberScheduled"),
		column("Current", "integer", ".status.currentNumberScheduled"),
		column("Ready", "integer", ".status.numberReady"),
		column("Available", "integer", ".status.numberAvailable"), age(),
	},
	{Group: "batch", Resource: "jobs"}: {
		column("Active", "integer", ".status.active"), column("Succeeded", "integer", ".status.succeeded"),
		column("Completions", "integer", ".spec.completions"), age(),
	},
	{Group: "batch", Resource: "cronjobs"}: {
		column("Schedule", "string", ".spec.schedule"), column("Suspend", "boolean", ".spec.suspend"),
		column("Last schedule", "date", ".status.lastScheduleTime"), age(),
	},
	{Resource: "services"}: {
		column("Type", "string", ".spec.type"), column("External-IP", "string", ".status.loadBalancer.ingress[*].ip"),
		column("Port(s)", "string", ".spec.ports[*].port"), age(),
	},
	{Resource: "persistentvolumeclaims"}: {
		column("Status", "string", ".status.phase"), column("Capacity", "string", ".status.capacity.storage"), age(),
	},
	{Group: "networking.k8s.io", Resource: "ingresses"}: {
		column("Class", "string", ".spec.ingressClassName"), column("Hosts", "string", ".spec.rules[*].host"),
		column("Address", "string", ".status.loadBalancer.ingress[*].ip"), age(),
	},
}

func column(name, kind, path string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: kind, JSONPath: path}
}

func age() apiextensionsv1.CustomResourceColumnDefinition {
	return column("Age", "date", ".metadata.creationTimestamp")
}
