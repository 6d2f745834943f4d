package puller

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
