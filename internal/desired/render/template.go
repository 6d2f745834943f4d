package render

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"text/template"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/templates"
)

// The templates, by path.
const (
	namespaceTemplate = "namespace.yaml"
	configMapTemplate = "configmap.yaml"
	secretTemplate    = "secret.yaml"
	serviceTemplate   = "service.yaml"
	// aliasTemplate has no type, so that an existing Service keeps its own, with the addresses that it has.
	aliasTemplate         = "alias.yaml"
	peersTemplate         = "peers.yaml"
	claimTemplate         = "volumeclaim.yaml"
	ingressTemplate       = "ingress.yaml"
	tlsRouteTemplate      = "tlsroute.yaml"
	routeTemplate         = "route.yaml"
	pdbTemplate           = "pdb.yaml"
	autoscalerTemplate    = "autoscaler.yaml"
	networkPolicyTemplate = "networkpolicy.yaml"
	deploymentTemplate    = "deployment.yaml"
	statefulSetTemplate   = "statefulset.yaml"

	serviceAccountTemplate = "serviceaccount.yaml"
	agentRoleTemplate      = "agentrole.yaml"
	agentBindingTemplate   = "agentrolebinding.yaml"
	publishedTemplate      = "publishedresource.yaml"
	exportTemplate         = "apiexport.yaml"

	syncerNamespaceTemplate = "syncernamespace.yaml"
	syncerTemplate          = "syncer.yaml"
	credentialTemplate      = "credential.yaml"
	clusterTemplate         = "cluster.yaml"

	podMonitorTemplate     = "podmonitor.yaml"
	prometheusRuleTemplate = "prometheusrule.yaml"

	podPolicyTemplate        = "podpolicy.yaml"
	podPolicyBindingTemplate = "podpolicybinding.yaml"

	// definitionFile is a manifest, not a template.
	definitionFile = "agent/crd.yaml"
)

// manifest is a template, and data has the fields that it refers to.
type manifest struct {
	name string
	data any
}

// manifests has a row for each template.
var manifests = []manifest{
	{namespaceTemplate, data{}},
	{configMapTemplate, data{}},
	{secretTemplate, data{}},
	{serviceTemplate, workload{}},
	{aliasTemplate, workload{}},
	{peersTemplate, workload{}},
	{ingressTemplate, route{}},
	{tlsRouteTemplate, route{}},
	{routeTemplate, route{}},
	{claimTemplate, workload{}},
	{pdbTemplate, workload{}},
	{autoscalerTemplate, autoscaler{}},
	{networkPolicyTemplate, networkPolicy{}},
	{podMonitorTemplate, monitored{}},
	{prometheusRuleTemplate, monitored{}},
	{deploymentTemplate, workload{}},
	{statefulSetTemplate, workload{}},
	{workspaceTemplate, inWorkspace{}},
	{bindingTemplate, inWorkspace{}},
	{roleTemplate, inWorkspace{}},
	{roleBindingTemplate, inWorkspace{}},
	{exportTemplate, inWorkspace{}},
	{publishedTemplate, inWorkspace{}},
	{syncerNamespaceTemplate, inWorkspace{}},
	{syncerTemplate, inWorkspace{}},
	{credentialTemplate, inWorkspace{}},
	{clusterTemplate, inWorkspace{}},
	{podPolicyTemplate, inWorkspace{}},
	{podPolicyBindingTemplate, inWorkspace{}},
	{serviceAccountTemplate, onCluster{}},
	{agentRoleTemplate, onCluster{}}, // and a ClusterRole
	{agentBindingTemplate, onCluster{}},
}

// templateSet are all templates, parsed once: each is an object in which a blank stands for each value.
type templateSet map[string]parsed

type parsed struct {
	manifest
	object map[string]any
}

// blank is the name of a field of the data that a template refers to.
type blank string

// blankPrefix marks the blanks in the text of a template until it is decoded.
const blankPrefix = "kcpctl.dev/blank:"

func parseTemplates() (templateSet, error) {
	t := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"json": toJSON})
	paths, err := fs.Glob(templates.FS, "*/*.yaml")
	if err == nil {
		paths = slices.DeleteFunc(paths, func(p string) bool { return p == definitionFile })
		t, err = t.ParseFS(templates.FS, paths...)
	}
	if err != nil {
		return nil, fmt.Errorf("parse templates: %w", err)
	}
	out := templateSet{}
	for _, m := range manifests {
		object, err := decodeTemplate(t, m)
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", m.name, err)
		}
		out[m.name] = parsed{m, object}
	}
	return out, nil
}

// decodeTemplate decodes a template with a blank for each field of its data.
func decodeTemplate(t *template.Template, m manifest) (map[string]any, error) {
	blanks := map[string]string{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(m.data)) {
		blanks[f.Name] = blankPrefix + f.Name
	}
	var text bytes.Buffer
	if err := t.ExecuteTemplate(&text, m.name, blanks); err != nil {
		return nil, err
	}
	var object map[string]any
	if err := yamlv3.Unmarshal(text.Bytes(), &object); err != nil {
		return nil, err
	}
	markBlanks(object)
	return object, nil
}

// markBlanks gives blanks their type.
func markBlanks(v any) any {
	switch v := v.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, blankPrefix); ok {
			return blank(name)
		}
	case map[string]any:
		for k := range v {
			v[k] = markBlanks(v[k])
		}
	case []any:
		for i := range v {
			v[i] = markBlanks(v[i])
		}
	}
	return v
}

// fill returns a copy of a template's object, or of a part of it, with the values of data.
func fill(part any, data reflect.Value) (any, error) {
	switch part := part.(type) {
	case blank:
		return plain(data.FieldByName(string(part)).Interface())
	case map[string]any:
		out := make(map[string]any, len(part))
		for k, v := range part {
			var err error
			if out[k], err = fill(v, data); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(part))
		for i := range part {
			var err error
			if out[i], err = fill(part[i], data); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return part, nil
}

// plain returns a copy of a value with the types of decoded JSON. The first cases are the frequent ones; the others
// are encoded and decoded.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case map[string]string:
		return plainMap(v, func(s string) (any, error) { return s, nil })
	case map[string][]byte:
		return plainMap(v, func(b []byte) (any, error) { return base64.StdEncoding.EncodeToString(b), nil })
	case dict:
		return plainMap(v, plain)
	case []dict:
		return plainList(v, func(d dict) (any, error) { return plain(d) })
	case []string:
		return plainList(v, func(s string) (any, error) { return s, nil })
	}
	js, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	err = kjson.UnmarshalCaseSensitivePreserveInts(js, &out)
	return out, err
}

func plainMap[V any](m map[string]V, convert func(V) (any, error)) (any, error) {
	if m == nil {
		return nil, nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		var err error
		if out[k], err = convert(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func plainList[V any](list []V, convert func(V) (any, error)) (any, error) {
	if list == nil {
		return nil, nil
	}
	out := make([]any, len(list))
	for i := range list {
		var err error
		if out[i], err = convert(list[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// toJSON is the only function of templates. JSON is YAML that needs neither quoting nor indentation.
func toJSON(v any) (string, error) {
	js, err := json.Marshal(v)
	return string(js), err
}

func toYAML(v any) []byte {
	b, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // kcpctl's own values can always be encoded
	}
	return b
}

// object renders a template to an object without null fields, and merges the overlays into it.
func (s templateSet) object(name string, data any, overlays ...overlay) (*unstructured.Unstructured, error) {
	filled, err := fill(s[name].object, reflect.ValueOf(data))
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	obj, _ := filled.(map[string]any)
	dropEmpty(obj)
	for _, o := range overlays {
		if err := o.merge(obj); err != nil {
			return nil, err
		}
	}
	u := &unstructured.Unstructured{Object: obj}
	if plan.HasPods(u.GetKind()) {
		if err := complete(obj); err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
	}
	return u, nil
}

// dropEmpty removes null fields and empty maps, which templates print for values that are not set. It keeps the empty
// map of an emptyDir volume, which has a meaning. Integers become int64, as in decoded JSON.
func dropEmpty(obj map[string]any) {
	for k, v := range obj {
		switch v := v.(type) {
		case nil:
			delete(obj, k)
		case int:
			obj[k] = int64(v)
		case map[string]any:
			dropEmpty(v)
			if len(v) == 0 && k != "emptyDir" {
				delete(obj, k)
			}
		case []any:
			for i, e := range v {
				switch e := e.(type) {
				case map[string]any:
					dropEmpty(e)
				case int:
					v[i] = int64(e)
				}
			}
		}
	}
}
