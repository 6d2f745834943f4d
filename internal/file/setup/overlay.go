package setup

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/strategic"
)

// podTemplate is the schema of a podTemplate overlay: a corev1.PodTemplateSpec with only labels and annotations as
// metadata.
type podTemplate struct {
	Metadata overlayMetadata `json:"metadata"`
	Spec     corev1.PodSpec  `json:"spec"`
}

// service is the schema of a service overlay: the fields of a ServiceSpec, and metadata.
type service struct {
	Metadata           overlayMetadata `json:"metadata"`
	corev1.ServiceSpec `json:",inline"`
}

type overlayMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// overlaySchema returns the schema of an overlay, or nil if the field is not an overlay.
func overlaySchema(f *structField) reflect.Type {
	switch {
	case f.typ != reflect.TypeFor[v1alpha1.Overlay]():
		return nil
	case f.name == "service":
		return reflect.TypeFor[service]()
	}
	return reflect.TypeFor[podTemplate]()
}

// overlaid decodes an overlay.
func (d *decoder) overlaid(n *yaml.Node, schema reflect.Type, p *field.Path) (any, bool) {
	d.overlay = true
	defer func() { d.overlay = false }()
	return d.value(n, schema, p)
}

func isDirective(key string) bool { return strings.HasPrefix(key, "$") }

// directive decodes a directive of strategic merge into out.
func (d *decoder) directive(out map[string]any, e entry, p *field.Path) {
	at, key := p.Child(e.key.Value), e.key.Value
	if key != strategic.Directive {
		d.report(at, e.key, "unknown directive", "known: "+strategic.Directive)
		return
	}
	v, ok := d.value(e.value, reflect.TypeFor[string](), at)
	if !ok {
		return
	}
	if v != strategic.Replace && v != strategic.Delete {
		d.report(at, e.value, fmt.Sprintf("unsupported value %s", describe(e.value)),
			"known: "+strategic.Replace+", "+strategic.Delete)
		return
	}
	if hasOurLabels(p) {
		d.report(at, e.value, fmt.Sprintf("unsupported value %s", describe(e.value)),
			"kcpctl finds its objects by their labels: list those to add or change")
		return
	}
	out[key] = v
}

// hasOurLabels reports whether a part of an overlay contains the labels of kcpctl.
func hasOurLabels(p *field.Path) bool {
	path := strings.TrimSuffix(strings.TrimSuffix(p.String(), ".labels"), ".metadata")
	return strings.HasSuffix(path, ".podTemplate") || strings.HasSuffix(path, ".service")
}

// checkMergeKeys checks that each item of a list has the key by which strategic merge matches it.
func (d *decoder) checkMergeKeys(n *yaml.Node, items []any, key string, p *field.Path) {
	for i, item := range items {
		object, ok := item.(map[string]any)
		_, named := object[key]
		_, directed := object[strategic.Directive]
		// An item with only "$patch: replace" applies to the whole list.
		if !ok || named || directed && len(object) == 1 {
			continue
		}
		d.report(p.Index(i), n.Content[i], "required: "+key+", the key by which items of this list are merged", "")
	}
}
