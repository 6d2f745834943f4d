package render

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// An object that kcpctl has rendered and another tool has applied must equal the rendered one. kube-apiserver adds
// defaults to objects, and writes quantities its own way. This does not matter where each field has its own manager.
// But an atomic object or list has one manager as a whole, and would differ. Therefore, it is rendered completely
// (kubernetes: pkg/apis/core/v1/defaults.go; x-kubernetes-map-type and x-kubernetes-list-type in its OpenAPI).

// atomicDefaults has the defaults of the objects in pod templates that are atomic, or elements of atomic lists, by the
// field that they are the value of.
var atomicDefaults = map[string]map[string]any{
	"fieldRef":            {"apiVersion": "v1"},
	"resourceFieldRef":    {"divisor": "0"},
	"fileKeyRef":          {"optional": false},
	"serviceAccountToken": {"expirationSeconds": int64(3600)},
	"podCertificate":      {"maxExpirationSeconds": int64(86400)},
}

// quantityFields are the fields of pod templates that are quantities, or maps with quantities.
var quantityFields = map[string]bool{
	"requests": true, "limits": true, "overhead": true, "sizeLimit": true, "divisor": true, "storage": true,
}

// complete completes the pods of a workload, and the claims of their volumes.
func complete(workload map[string]any) error {
	claims, _ := part(workload, "spec")["volumeClaimTemplates"].([]any)
	for _, claim := range claims {
		if c, ok := claim.(map[string]any); ok {
			setMissing(c, map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim"})
			setMissing(part(c, "spec"), map[string]any{"volumeMode": "Filesystem"})
			setMissing(part(c, "status"), map[string]any{"phase": "Pending"})
		}
	}
	return completeFields(part(workload, "spec", "template", "spec"))
}

func setMissing(in, defaults map[string]any) {
	for field, value := range defaults {
		if _, set := in[field]; !set {
			in[field] = value
		}
	}
}

// completeFields completes what is below a part of a pod template.
func completeFields(of map[string]any) error {
	for field, v := range of {
		if err := completeValue(of, field, v); err != nil {
			return err
		}
	}
	return nil
}

func completeValue(of map[string]any, field string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		if quantityFields[field] {
			return canonicalQuantities(v)
		}
		setMissing(v, atomicDefaults[field])
		return completeFields(v)
	case []any:
		for _, e := range v {
			if e, ok := e.(map[string]any); ok {
				if err := completeFields(e); err != nil {
					return err
				}
			}
		}
	case string, int64, float64:
		if quantityFields[field] {
			return canonicalQuantity(of, field)
		}
	}
	return nil
}

func canonicalQuantities(list map[string]any) error {
	for name := range list {
		if err := canonicalQuantity(list, name); err != nil {
			return err
		}
	}
	return nil
}

// canonicalQuantity writes a quantity as API servers do: 1000m is 1.
func canonicalQuantity(in map[string]any, name string) error {
	q, err := resource.ParseQuantity(fmt.Sprint(in[name]))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	in[name] = q.String()
	return nil
}
