package setup

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
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

// overlaid decodes an overlay. If all fields are valid, it also tries the merge, which fails on misplaced directives.
func (d *decoder) overlaid(n *yaml.Node, schema reflect.Type, p *field.Path) (any, bool) {
	d.overlay = true
	defer func() { d.overlay = false }()
	before := len(d.problems)
	v, ok := d.value(n, schema, p)
	if !ok || len(d.problems) > before {
		return v, ok
	}
	patch, _ := clone(v).(map[string]any) // merging removes the directives
	ours := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
	if _, err := strategicpatch.StrategicMergeMapPatch(ours, patch, reflect.Zero(schema).Interface()); err != nil {
		at, reason := d.positions[pathString(p)], strings.Join(strings.Fields(err.Error()), " ")
		return d.fail(p, &yaml.Node{Line: at.line, Column: at.column}, "cannot be merged: "+reason, "")
	}
	return v, true
}

// The directives of strategic merge (k8s.io/apimachinery: pkg/util/strategicpatch).
const (
	directivePatch      = "$patch"
	directiveRetainKeys = "$retainKeys"
	directiveOrder      = "$setElementOrder/"
	directiveDelete     = "$deleteFromPrimitiveList/"
)

func isDirective(key string) bool { return strings.HasPrefix(key, "$") }

// directive decodes a directive of strategic merge into out.
func (d *decoder) directive(out map[string]any, e entry, p *field.Path) {
	at, key := p.Child(e.key.Value), e.key.Value
	t := reflect.TypeFor[[]any]()
	switch {
	case key == directivePatch:
		t = reflect.TypeFor[string]()
	case key == directiveRetainKeys:
		t = reflect.TypeFor[[]string]()
	case !strings.HasPrefix(key, directiveOrder) && !strings.HasPrefix(key, directiveDelete):
		d.report(at, e.key, "unknown directive", fmt.Sprintf("known: %s, %s, %s<field>, %s<field>",
			directivePatch, directiveRetainKeys, directiveOrder, directiveDelete))
		return
	}
	v, ok := d.value(e.value, t, at)
	if !ok {
		return
	}
	if key == directivePatch && v != "merge" && v != "replace" && v != "delete" {
		d.report(at, e.value, fmt.Sprintf("unsupported value %s", describe(e.value)), "known: merge, replace, delete")
		return
	}
	if key == directivePatch && v != "merge" && hasOurLabels(p) {
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
		_, directed := object[directivePatch]
		// An item with only "$patch: replace" applies to the whole list.
		if !ok || named || directed && len(object) == 1 {
			continue
		}
		d.report(p.Index(i), n.Content[i], "required: "+key+", the key by which items of this list are merged", "")
	}
}
