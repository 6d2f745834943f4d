package render

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// TrustIn returns the bundles in an object, rendered or live, that all components trust: PEM certificates or keys by
// pki.Rotation.Key. It returns nothing for objects of a single component.
func TrustIn(t *topology.Topology, o *unstructured.Unstructured) map[string][]byte {
	out := map[string][]byte{}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	switch {
	case o.GetKind() == "ConfigMap" && o.GetName() == t.Object(topology.CAPart):
		for file, bundle := range data {
			out[pki.RotationOf(topology.CA(strings.TrimSuffix(file, ".crt"))).Key()] = []byte(bundle)
		}
	case o.GetKind() == "Secret" && o.GetName() == t.Object(topology.ServiceAccountPart):
		if public, err := base64.StdEncoding.DecodeString(data[serviceAccountPublic]); err == nil && len(public) > 0 {
			out[pki.KeyRotation{}.Key()] = public
		}
	}
	return out
}
