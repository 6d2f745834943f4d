package importer

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// reader sorts the documents of the input.
type reader struct {
	options Options
	// objects are the objects of kcp-operator and cert-manager, with their fields mapped; values are documents with
	// values of the chart.
	objects  []*object
	values   []*object
	others   []*object
	problems setup.Errors
	// chart is the version of the chart whose values these are, if an object of another tool names it.
	chart chartVersion
	// namespace is the one into which such an object installs the chart, if it says that.
	namespace string
}

// read reads all sources. It continues after a problem, so that it finds all of them.
func (r *reader) read(sources []Source) {
	for _, s := range sources {
		docs, problem := setup.Objects(s.Data)
		if problem != nil {
			problem.File = s.Name
			r.problems = append(r.problems, *problem)
			continue
		}
		for _, doc := range docs {
			r.document(s.Name, doc)
		}
	}
}

// document adds a document: an object, or values of a chart.
func (r *reader) document(file string, root *yaml.Node) {
	if isKustomization(file, root) {
		r.kustomization(file, root)
		return
	}
	if root.Kind != yaml.MappingNode {
		r.problems = append(r.problems, setup.Problem{
			File: file, Line: root.Line, Column: root.Column, Message: setup.MustBe("an object", root),
		})
		return
	}
	apiVersion, kind := scalar(root, "apiVersion"), scalar(root, "kind")
	switch {
	case apiVersion == "" && kind == "" && !isValues(root):
		r.problems = append(r.problems, setup.Problem{
			File: file, Line: root.Line, Column: root.Column,
			Message: "neither a Kubernetes object nor values of the chart kcp",
			Hint:    "remove it from the input",
		})
	case apiVersion == "" && kind == "":
		r.chartValues(file, root)
	default:
		r.object(file, apiVersion, kind, root)
	}
}

func (r *reader) chartValues(file string, root *yaml.Node) {
	o := newObject(file, chart, "values", root)
	o.proxy, o.members = newObject(file, chart, "values", root), newObject(file, chart, "values", root)
	o.members.container = containerEtcd
	o.as = topology.RootShard
	o.proxy.as = topology.FrontProxy
	o.members.as = topology.Etcd
	r.values = append(r.values, o)
}

// isKustomization reports whether a document is for kubectl kustomize.
func isKustomization(file string, root *yaml.Node) bool {
	group, _, _ := strings.Cut(scalar(root, "apiVersion"), "/")
	named := slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, filepath.Base(file))
	return group == "kustomize.config.k8s.io" || named && scalar(root, "apiVersion") == "" &&
		root.Kind == yaml.MappingNode
}

// kustomization skips a file for kubectl kustomize, which may change the objects in other files.
func (r *reader) kustomization(file string, root *yaml.Node) {
	o := newObject(file, "kustomize", "Kustomization", root)
	fields, _ := setup.Fields(root, nil)
	changes := slices.ContainsFunc(fields, func(f setup.Field) bool {
		return !slices.Contains([]string{"apiVersion", "kind", "metadata", "resources"}, f.Key.Value)
	})
	if changes {
		o.find(NotMapped, "import reads the files as they are, without what kustomize changes in them",
			"import its output: kubectl kustomize DIR | kcpctl import -f -")
	} else {
		o.find(NotNeeded, "it names files only, and import reads the files that -f names", "")
	}
	r.others = append(r.others, o)
}

// isValues reports whether a document has a value of the chart.
func isValues(root *yaml.Node) bool {
	branch := newBranch(chartRows())
	fields, _ := setup.Fields(root, nil)
	return slices.ContainsFunc(fields, func(f setup.Field) bool { return branch.child(f.Key.Value) != nil })
}

func (r *reader) object(file, apiVersion, kind string, root *yaml.Node) {
	group, _, _ := strings.Cut(apiVersion, "/")
	metadata := lookup(root, "metadata")
	o := newObject(file, "the API "+apiVersion, kind, root)
	o.name, o.namespace = scalar(metadata, "name"), scalar(metadata, "namespace")
	for _, t := range tables() {
		if t.group != group || t.kind != kind {
			continue
		}
		if o.name == "" {
			o.fail("required: metadata.name", "")
		}
		if first := r.same(o); first != nil {
			first.patch(o, t.rows)
			return
		}
		o.walk(root, newBranch(t.rows), nil)
		if group == groupCertManager && len(o.findings) == 0 {
			o.find(NotNeeded, ownPKI, "")
		}
		r.objects = append(r.objects, o)
		return
	}
	if r.release(o) {
		return
	}
	for _, t := range otherKinds() {
		if (t.group == group || t.group == "*") && (t.kind == kind || t.kind == "*") {
			o.find(t.verdict, t.why, t.instead)
			break
		}
	}
	r.others = append(r.others, o)
}

// otherKind says what becomes of an object that import does not read.
type otherKind struct {
	group, kind  string
	verdict      Kind
	why, instead string
}

func otherKinds() []otherKind {
	return []otherKind{
		{groupOperator, "Bundle", NotMapped, "kcp-operator no longer has it",
			"give a component on another cluster its cluster, and see spec.clusters"},
		{groupCompiled, "*", NotNeeded, "kcp-operator derives it from other objects", ""},
		{groupCertManager, "*", NotNeeded, ownPKI, ""},
		{"v1", "Namespace", NotNeeded, "up creates the namespaces of the setup", ""},
		{"*", "*", NotMapped, "import does not read this kind",
			"keep it: kcpctl does not change objects that it did not create"},
	}
}

// mapValues maps all documents with values of a chart as one, merged as helm merges them.
func (r *reader) mapValues() *object {
	if len(r.values) == 0 {
		return nil
	}
	first := r.values[0]
	for _, o := range r.values {
		first.claim(o.root, o.file)
		if o != first {
			first.file, first.root = o.file, first.merge(first.root, o.root, nil)
		}
	}
	on := func(path string) bool { return isOn(first.root, path) }
	for _, o := range []*object{first, first.proxy, first.members} {
		o.on = on
	}
	first.walk(first.root, newBranch(chartRows()), nil)
	return first
}

// claim notes the file of all nodes of a document.
func (o *object) claim(n *yaml.Node, file string) {
	o.files[n] = file
	for _, c := range n.Content {
		o.claim(c, file)
	}
}

// merge returns two values as helm merges two files: objects field by field, of which null removes one, and
// otherwise the second value.
func (o *object) merge(a, b *yaml.Node, at *field.Path) *yaml.Node {
	if a.Kind != yaml.MappingNode || b.Kind != yaml.MappingNode {
		return b
	}
	var all []setup.Field
	for _, n := range []*yaml.Node{a, b} {
		fields, problems := setup.Fields(n, at)
		o.problemIn(o.files[n], problems...)
		for _, f := range fields {
			i := slices.IndexFunc(all, func(have setup.Field) bool { return have.Key.Value == f.Key.Value })
			switch {
			case i < 0:
				all = append(all, f)
			case f.Value.ShortTag() == "!!null":
				all = slices.Delete(all, i, i+1)
			default:
				f.Value = o.merge(all[i].Value, f.Value, child(at, f.Key.Value))
				all[i] = f
			}
		}
	}
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: b.Line, Column: b.Column}
	for _, f := range all {
		out.Content = append(out.Content, f.Key, f.Value)
	}
	return out
}

// isOn reports whether a field of the values is true. Only the etcd of the chart is on by default, unless kcp uses
// another one.
func isOn(root *yaml.Node, path string) bool {
	if path == pathEtcd && scalar(fieldAt(root, "kcp.etcd"), "serverAddress") != "" {
		return false
	}
	if n := fieldAt(root, path); n != nil {
		return n.Value == "true"
	}
	return path == pathEtcd
}

// lookup returns the value of a key of an object, or nil.
func lookup(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	fields, _ := setup.Fields(n, nil)
	for _, f := range fields {
		if f.Key.Value == key {
			return f.Value
		}
	}
	return nil
}

// scalar returns the text of a key of an object, or "".
func scalar(n *yaml.Node, key string) string {
	if v := lookup(n, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// refuseMixtures adds problems where the documents do not describe exactly one installation.
func (r *reader) refuseMixtures() {
	roots := r.of(kindRootShard)
	switch {
	case len(r.values) > 0 && len(r.operator()) > 0:
		r.values[0].fail("the input has values of a chart and objects of kcp-operator",
			"import each installation separately")
	case len(r.values) == 0 && len(roots) == 0 && len(r.operator()) > 0:
		r.operator()[0].fail("the input has no RootShard", "add the file with the RootShard that the objects belong to")
	}
	for i := 1; i < len(roots); i++ {
		roots[i].fail("the input has several RootShards, and a setup file describes one installation",
			"import the objects of each RootShard separately")
	}
	for i := 1; i < len(r.of(kindCacheServer)); i++ {
		r.of(kindCacheServer)[i].fail("the input has several CacheServers, and all shards of a setup use one",
			"import only the one to keep")
	}
}

// of returns the objects of a kind, in the order of the input.
func (r *reader) of(kind string) []*object {
	var out []*object
	for _, o := range r.objects {
		if o.kind == kind && strings.HasPrefix(o.source, "the API "+groupOperator+"/") {
			out = append(out, o)
		}
	}
	return out
}

func (r *reader) operator() []*object {
	var out []*object
	for _, o := range r.objects {
		if strings.HasPrefix(o.source, "the API "+groupOperator+"/") {
			out = append(out, o)
		}
	}
	return out
}

func asErrors(err error) (setup.Errors, bool) { return errors.AsType[setup.Errors](err) }

// origin returns the position in the input of a field of the setup file, or of the closest parent that has one.
func (a *assembly) origin(path string) (file string, line, column int) {
	for at := a.before(path); at != ""; at = setup.Parent(at) {
		for _, o := range a.all() {
			if v, ok := o.originOf(at); ok {
				return v.file, v.node.Line, v.node.Column
			}
			if o.prefix == at {
				return o.file, o.root.Line, o.root.Column
			}
			if v, ok := o.firstBelow(at); ok {
				return v.file, v.node.Line, v.node.Column
			}
		}
	}
	first := a.all()[0]
	return first.file, first.root.Line, first.root.Column
}

// before returns the field of the root shard that share moved to a field of the whole setup, or the same field.
func (a *assembly) before(path string) string {
	for _, moved := range [][2]string{
		{"spec.version", ".image.tag"}, {"spec.image.", ".image."}, {"spec.defaults.", "."},
	} {
		if rest, ok := strings.CutPrefix(path, moved[0]); ok {
			return a.root.prefix + moved[1] + rest
		}
	}
	return path
}

// originOf returns the field of the object that a field of the setup file comes from.
func (o *object) originOf(path string) (value, bool) {
	if m := regexp.MustCompile(`^(.*)\.extraArgs\[(\d+)\]$`).FindStringSubmatch(path); m != nil && m[1] == o.prefix {
		i, _ := strconv.Atoi(m[2])
		if args := o.component.ExtraArgs; i < len(args) {
			v, ok := o.argsFrom[flagName(args[i])]
			return v, ok
		}
	}
	for to, v := range o.origins {
		if to != "" && o.absolute(to) == path {
			return v, true
		}
	}
	return value{}, false
}

// firstBelow returns the first field of the object that is mapped to a field below another.
func (o *object) firstBelow(path string) (first value, ok bool) {
	for to, v := range o.origins {
		if to != "" && strings.HasPrefix(o.absolute(to), path+".") && (!ok || v.node.Line < first.node.Line) {
			first, ok = v, true
		}
	}
	return first, ok
}
