package render

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// TrustIn returns what a setup-wide object, rendered or live, makes all components trust: PEM bundles by pki.Rotation.Key. Other
// objects have none.
func TrustIn(t *topology.Topology, o *unstructured.Unstructured) map[string][]byte {
	out := map[string][]byte{}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	switch {
	case o.GetKind() == "ConfigMap" && o.GetName() == t.Object(caPart):
		for file, bundle := range data {
			out[pki.RotationOf(pki.CA(strings.TrimSuffix(file, ".crt"))).Key()] = []byte(bundle)
		}
	case o.GetKind() == "Secret" && o.GetName() == t.Object(serviceAccountPart):
		if public, err := base64.StdEncoding.DecodeString(data[serviceAccountPublic]); err == nil && len(public) > 0 {
			out[pki.KeyRotation{}.Key()] = public
		}
	}
	return out
}
