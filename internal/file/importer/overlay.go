package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// mountRoot is where Secrets and ConfigMaps are mounted that a flag refers to. The configuration of kcpctl's pods is a
// read-only volume at /etc/kcp, so nothing can be mounted below it.
const mountRoot = "/etc/imported"

// below returns the object at a path of nested objects, which it creates if they do not exist.
func below(m map[string]any, path ...string) map[string]any {
	for _, key := range path {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	return m
}

func (o *object) pod(path ...string) map[string]any {
	if o.component.PodTemplate == nil {
		o.component.PodTemplate = v1alpha1.Overlay{}
	}
	return below(o.component.PodTemplate, path...)
}

func (o *object) service(path ...string) map[string]any {
	if o.component.Service == nil {
		o.component.Service = v1alpha1.Overlay{}
	}
	return below(o.component.Service, path...)
}

func (o *object) inContainer() map[string]any {
	spec := o.pod("spec")
	if list, ok := spec["containers"].([]any); ok {
		if c, ok := list[0].(map[string]any); ok {
			return c
		}
	}
	c := map[string]any{"name": o.container}
	spec["containers"] = []any{c}
	return c
}

// raw validates a value as a Kubernetes type, and returns it as it is written.
func raw[T any](v value) (any, bool) {
	var typed T
	var out any
	if v.node.ShortTag() == "!!null" || !v.decode(&typed) || !v.decode(&out) {
		return nil, false
	}
	return out, true
}

// podSpec returns the mapping of a field to one of the pod's spec.
func podSpec[T any](who at, name string) func(value) {
	return func(v value) {
		if out, ok := raw[T](v); ok && !v.empty() {
			who(v.o).pod("spec")[name] = out
			v.reviewSelectors()
		}
	}
}

// podSecurity returns the mapping of a security context of pods. The chart has two, of which the deprecated one takes
// precedence.
func podSecurity(who at, precedes bool) func(value) {
	return func(v value) {
		out, _ := raw[corev1.PodSecurityContext](v)
		fields, _ := out.(map[string]any)
		for name, f := range fields {
			all := who(v.o).pod("spec", "securityContext")
			if _, set := all[name]; precedes || !set {
				all[name] = f
			}
		}
	}
}

// containerField returns the mapping of a field to one of the container.
func containerField[T any](who at, name string) func(value) {
	return func(v value) {
		if out, ok := raw[T](v); ok && !v.empty() {
			who(v.o).inContainer()[name] = out
			v.reviewPaths()
		}
	}
}

// podMetadata returns the mapping of labels or annotations of pods.
func podMetadata(who at, name string) func(value) {
	return func(v value) {
		if out, ok := raw[map[string]string](v); ok && !v.empty() {
			who(v.o).pod("metadata")[name] = out
		}
	}
}

// common returns the mapping of labels or annotations of a Deployment to the common ones of the setup. It keeps the
// first of different values for one key.
func common(of func(*v1alpha1.CommonMetadata) *map[string]string) func(value) {
	return func(v value) {
		var own map[string]string
		if v.empty() || !v.decode(&own) {
			return
		}
		v.o.metadata = append(v.o.metadata, func(m *v1alpha1.CommonMetadata) {
			all := of(m)
			if *all == nil {
				*all = map[string]string{}
			}
			for _, key := range slices.Sorted(maps.Keys(own)) {
				switch have, taken := (*all)[key]; {
				case topology.IsOwnKey(key):
					v.find(NotMapped, key+" is one that kcpctl sets itself", "")
				case !taken:
					(*all)[key] = own[key]
				case have != own[key]:
					v.find(NotMapped,
						fmt.Sprintf("%s is %q in another object, and a setup has one value", key, have), "")
				}
			}
		})
	}
}

// serviceMetadata returns the mapping of labels or annotations of a Service.
func serviceMetadata(who at, name string) func(value) {
	return func(v value) {
		if out, ok := raw[map[string]string](v); ok && !v.empty() {
			who(v.o).service("metadata")[name] = out
		}
	}
}

// serviceField returns the mapping of a text to a field of a Service.
func serviceField(who at, name string) func(value) {
	return func(v value) {
		if out, ok := raw[string](v); ok && !v.empty() {
			who(v.o).service()[name] = out
		}
	}
}

// reviewSelectors adds a finding if label selectors name the labels of another tool's pods.
func (v value) reviewSelectors() {
	if mentions(v.node, func(n *yaml.Node) bool { return strings.HasPrefix(n.Value, "app.kubernetes.io/") }) {
		v.find(Review, "its label selectors select the pods of another tool",
			"use kcpctl's labels, such as kcpctl.dev/component, or remove it: kcpctl spreads replicas "+
				"over nodes and zones")
	}
}

// reviewPaths adds a finding if the value names a file of another tool's pods.
func (v value) reviewPaths() {
	if mentions(v.node, func(n *yaml.Node) bool { return strings.Contains(n.Value, "/etc/kcp") }) {
		v.find(Review, "it refers to a path below /etc/kcp, where kcpctl's pods have other files",
			"mount what it needs elsewhere with podTemplate, such as at "+mountRoot)
	}
}

// mentions reports whether a scalar of a tree matches.
func mentions(n *yaml.Node, match func(*yaml.Node) bool) bool {
	return n.Kind == yaml.ScalarNode && match(n) ||
		slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return mentions(c, match) })
}

// arg sets a flag. It reports whether it replaced one.
func (o *object) arg(v value, name, text string) (replaced bool) {
	args := o.component.ExtraArgs
	arg := "--" + name + "=" + text
	o.argsFrom[name] = v
	for i, a := range args {
		if flagName(a) == name {
			args[i] = arg
			return true
		}
	}
	o.component.ExtraArgs = append(args, arg)
	return false
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// flag returns the mapping of a single value to a flag.
func flag(name string, who ...at) func(value) {
	return func(v value) {
		if v.node.Kind != yaml.ScalarNode {
			v.fail("must be a single value", "")
			return
		}
		if v.node.Value == "" {
			return
		}
		for _, w := range targets(who) {
			w(v.o).arg(v, name, v.node.Value)
		}
	}
}

func targets(who []at) []at {
	if len(who) == 0 {
		return []at{self}
	}
	return who
}

// extraArgs returns the mapping of a list of arguments. The setup file has one item for each flag.
func extraArgs(who at) func(value) {
	return func(v value) {
		var list []string
		if !v.decode(&list) {
			return
		}
		for i := 0; i < len(list); i++ {
			item := value{o: v.o, file: v.file, key: v.node.Content[i], node: v.node.Content[i], at: v.at.Index(i)}
			arg, isFlag := strings.CutPrefix(list[i], "-")
			name, text, given := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
			if !isFlag || name == "" {
				item.fail(fmt.Sprintf("%q is not a flag", list[i]), "write --name=value")
				continue
			}
			switch {
			case given:
			case i+1 < len(list) && !strings.HasPrefix(list[i+1], "-"):
				i++
				text = list[i]
			default:
				text = "true"
			}
			if who(v.o).owned(item, name, text) {
				continue
			}
			if who(v.o).arg(item, name, text) {
				item.find(Review, "the flag --"+name+" has several values, and a setup file has each flag once",
					"the last one is kept: join them if the flag is a list")
			}
			item.reviewPaths()
		}
	}
}

// reference is a Secret or a ConfigMap with a file.
type reference struct {
	Name       string `json:"name"`
	SecretName string `json:"secretName"`
	Key        string `json:"key"`
}

// mountedFile is a file in a Secret or a ConfigMap, for a flag.
type mountedFile struct {
	flag, volume string
	// key is the key in the Secret or the ConfigMap, if the field does not set it.
	key       string
	configMap bool
}

// named returns the mapping of a field with the name of the Secret or ConfigMap.
func (f mountedFile) named(who ...at) func(value) {
	return func(v value) {
		var name string
		if v.decode(&name) && name != "" {
			f.mount(v, name, f.key, targets(who))
		}
	}
}

// referred returns the mapping of a field with the name and the key.
func (f mountedFile) referred(who ...at) func(value) {
	return func(v value) {
		var r reference
		if !v.decode(&r) {
			return
		}
		name := r.Name + r.SecretName
		key := r.Key
		if key == "" {
			key = f.key
		}
		if name == "" || key == "" {
			v.fail("required: the name and the key of the file", "")
			return
		}
		f.mount(v, name, key, targets(who))
	}
}

func (f mountedFile) mount(v value, name, key string, who []at) {
	source := map[string]any{"secret": map[string]any{"secretName": name}}
	if f.configMap {
		source = map[string]any{"configMap": map[string]any{"name": name}}
	}
	source["name"] = f.volume
	for _, w := range who {
		o := w(v.o)
		o.arg(v, f.flag, mountRoot+"/"+f.volume+"/"+key)
		addItem(o.pod("spec"), "volumes", "name", source)
		addItem(o.inContainer(), "volumeMounts", "mountPath", map[string]any{
			"name": f.volume, "mountPath": mountRoot + "/" + f.volume, "readOnly": true,
		})
	}
}

// addItem adds an item to a list, or replaces the one with the same key: the one by which strategic merge matches
// items.
func addItem(m map[string]any, list, key string, item map[string]any) {
	items, _ := m[list].([]any)
	for i, other := range items {
		if o, ok := other.(map[string]any); ok && o[key] == item[key] {
			items[i] = item
			return
		}
	}
	m[list] = append(items, item)
}

func volumes(who at) func(value) {
	return func(v value) {
		for _, item := range items[corev1.Volume](v) {
			addItem(who(v.o).pod("spec"), "volumes", "name", item)
		}
	}
}

func volumeMounts(who at) func(value) {
	return func(v value) {
		for _, item := range items[corev1.VolumeMount](v) {
			addItem(who(v.o).inContainer(), "volumeMounts", "mountPath", item)
		}
		// kcpctl mounts nothing at /etc/kcp-front-proxy.
		if mentions(v.node, func(n *yaml.Node) bool { return strings.HasPrefix(n.Value+"/", "/etc/kcp/") }) {
			v.reviewPaths()
		}
	}
}

// items validates a list of a Kubernetes type, and returns its items as they are written.
func items[T any](v value) []map[string]any {
	var out []map[string]any
	tree, _ := raw[[]T](v)
	list, _ := tree.([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// same returns the object of kcp-operator that the input has already, or nil. Issuers may be there several times: files
// for several clusters have them under the same names.
func (r *reader) same(o *object) *object {
	i := slices.IndexFunc(r.operator(), func(other *object) bool {
		return other.source == o.source && other.kind == o.kind && other.namespace == o.namespace &&
			other.name == o.name && o.name != ""
	})
	if i < 0 {
		return nil
	}
	return r.operator()[i]
}

// patch adds the fields of another document for the same object, as kubectl patch does. It is refused if the documents
// disagree, or if the second one says nothing new.
func (o *object) patch(more *object, rows []row) {
	where := fmt.Sprintf("%s, line %d", o.file, o.root.Line)
	added, conflict := beyond(o.root, more.root, nil)
	file := o.file
	root := o.root
	defer func() { o.file, o.root = file, root }()
	o.file = more.file
	o.root = more.root
	switch {
	case conflict != "":
		o.fail("the object is also in "+where+", with another value of "+conflict,
			"import one of them, or make them agree")
	case len(added.Content) == 0:
		o.fail("the object is also in "+where, "name each file once")
	default:
		o.find(Review, "the object is also in "+where+": the setup has the fields of both documents", "")
		o.walk(added, newBranch(rows), nil)
	}
}

// beyond returns the fields of the second object that the first one does not have, and the first field in which they
// have different values, or "".
func beyond(a, b *yaml.Node, at *field.Path) (added *yaml.Node, conflict string) {
	added = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: b.Line, Column: b.Column}
	fields, _ := setup.Fields(b, at)
	for _, f := range fields {
		mine, path := lookup(a, f.Key.Value), child(at, f.Key.Value)
		switch {
		case mine == nil:
			added.Content = append(added.Content, f.Key, f.Value)
		case mine.Kind == yaml.MappingNode && f.Value.Kind == yaml.MappingNode:
			more, conflict := beyond(mine, f.Value, path)
			if conflict != "" {
				return added, conflict
			}
			if len(more.Content) > 0 {
				added.Content = append(added.Content, f.Key, more)
			}
		case !equal(mine, f.Value):
			return added, path.String()
		}
	}
	return added, ""
}

// equal reports whether two nodes have the same content.
func equal(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && a.ShortTag() == b.ShortTag() && slices.EqualFunc(a.Content,
		b.Content, equal)
}
