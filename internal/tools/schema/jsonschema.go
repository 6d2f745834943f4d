package main

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// jsonSchema returns the JSON schema of the setup file.
func jsonSchema(c comments) ([]byte, error) {
	r := jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, Mapper: mapped, LookupComment: c.of,
	}
	s := r.Reflect(&v1alpha1.Setup{})
	s.Title = v1alpha1.KindSetup
	constant(s, "apiVersion", v1alpha1.APIVersion)
	constant(s, "kind", v1alpha1.KindSetup)
	// Endpoints may come from spec.etcd.
	s.Definitions["ExternalEtcd"].Required = nil
	abbreviate(s, reflect.TypeFor[v1alpha1.Expose]())
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("marshal schema: %w", err)
	}
	return append(data, '\n'), nil
}

// abbreviate allows values of a type that are abbreviated to one field.
func abbreviate(s *jsonschema.Schema, t reflect.Type) {
	long := s.Definitions[t.Name()]
	short, _ := long.Properties.Get(reflect.Zero(t).Interface().(abbreviated).ShortField())
	s.Definitions[t.Name()] = &jsonschema.Schema{
		OneOf: []*jsonschema.Schema{short, long}, Description: long.Description,
	}
}

// abbreviated is implemented by structs that a file may abbreviate to the value of one field.
type abbreviated interface{ ShortField() string }

func constant(s *jsonschema.Schema, property, value string) {
	if p, ok := s.Properties.Get(property); ok {
		p.Const = value
	}
}

// mapped returns the schema of a type for which reflection is not enough, or nil.
func mapped(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}}
	case reflect.TypeFor[v1alpha1.Replicas]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer"}, {Type: "null"}}}
	case reflect.TypeFor[metav1.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`}
	case reflect.TypeFor[v1alpha1.Overlay](), reflect.TypeFor[v1alpha1.Object](),
		reflect.TypeFor[v1alpha1.NamespaceObject](), reflect.TypeFor[corev1.ResourceRequirements](),
		reflect.TypeFor[rbacv1.PolicyRule]():
		return &jsonschema.Schema{Type: "object"}
	}
	if values := enum(t); values != nil {
		return &jsonschema.Schema{Type: "string", Enum: values}
	}
	return nil
}

// enum returns the values of an enumeration, or nil.
func enum(t reflect.Type) []any {
	switch t {
	case reflect.TypeFor[v1alpha1.PKIStore]():
		return []any{v1alpha1.PKIStoreCluster, v1alpha1.PKIStoreDirectory}
	case reflect.TypeFor[v1alpha1.KeyAlgorithm]():
		return []any{v1alpha1.KeyECDSAP256, v1alpha1.KeyECDSAP384, v1alpha1.KeyRSA2048, v1alpha1.KeyRSA4096}
	case reflect.TypeFor[v1alpha1.ExposeType]():
		return listed(v1alpha1.ExposeTypes)
	case reflect.TypeFor[v1alpha1.Size]():
		return listed(v1alpha1.Sizes)
	case reflect.TypeFor[v1alpha1.SyncMode]():
		return listed(v1alpha1.SyncModes)
	case reflect.TypeFor[v1alpha1.PodSecurity]():
		return listed(v1alpha1.PodSecurities)
	case reflect.TypeFor[corev1.IPFamilyPolicy]():
		return []any{corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack}
	case reflect.TypeFor[corev1.IPFamily]():
		return []any{corev1.IPv4Protocol, corev1.IPv6Protocol}
	case reflect.TypeFor[corev1.PullPolicy]():
		return []any{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	}
	return nil
}

func listed[T any](values []T) []any {
	var out []any
	for _, v := range values {
		out = append(out, v)
	}
	return out
}
