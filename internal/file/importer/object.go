package importer

import (
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// object is a document of the input, and what its fields become.
type object struct {
	file string
	// source is the API or the chart that defines the fields.
	source    string
	root      *yaml.Node
	kind      string
	name      string
	namespace string
	// as is the kind of the component that the object describes, if it describes one.
	as topology.Kind

	// What the fields become. Each kind of object uses some of these.
	component  v1alpha1.Component
	etcd       v1alpha1.ExternalEtcd
	managed    v1alpha1.ManagedEtcd
	external   v1alpha1.External
	kubeconfig v1alpha1.Kubeconfig
	auth       v1alpha1.FrontProxyAuthentication
	audit      *v1alpha1.Audit
	authorize  *v1alpha1.Authorization
	home       v1alpha1.HomeWorkspaces
	batteries  []string
	monitored  bool
	pki        v1alpha1.PKI
	metadata   []func(*v1alpha1.CommonMetadata)
	url        string
	domain     string
	custom     v1alpha1.VirtualWorkspace
	// virtualWorkspaceURL is the URL of the virtual workspaces of a shard.
	virtualWorkspaceURL string
	// late set fields when all objects are known.
	late []func()
	// The parts of a value that several fields of a chart have.
	algorithm, keySize, oidcKey, oidcCASecret, tokenKey string
	nodePort                                            int32
	refs                                                map[refKind]value
	// authFlags set the flags of a shard for the tokens in auth.
	authFlags []func()
	// paths are path mappings, and pathsFrom is where they are.
	paths     []filePathMapping
	pathsFrom value
	// uid is the UID of a RootShard, bundled is set for an object whose component is on another cluster, and caBundle
	// names a Secret with the authorities of what clients dial.
	uid      string
	bundled  value
	caBundle value
	// authConfig names a ConfigMap with the issuers of tokens.
	authConfig value
	// issuer is the issuer of the certificate for the hostname, and issuerFrom is where it is.
	issuer     *issuerReference
	issuerFrom value
	// container is the name of the container that overlays change.
	container string
	// proxy and members are further components that the values of a chart describe.
	proxy, members *object
	// on reports whether a field of the values is true.
	on func(path string) bool

	// prefix is the component in the setup file, such as spec.shards[0].
	prefix string
	// files are the files of nodes of values, which may be in several.
	files    map[*yaml.Node]string
	origins  map[string]value
	argsFrom map[string]value
	comments map[string][]string
	findings []Finding
	problems setup.Errors
}

// refKind is what an object refers to.
type refKind string

const (
	refRootShard        refKind = "RootShard"
	refShard            refKind = "Shard"
	refFrontProxy       refKind = "FrontProxy"
	refCacheServer      refKind = "CacheServer"
	refVirtualWorkspace refKind = "VirtualWorkspace"
)

// The containers of the pods that package render makes.
const (
	containerKCP  = "kcp"
	containerEtcd = "etcd"
)

func newObject(file, source, kind string, root *yaml.Node) *object {
	return &object{
		file: file, source: source, kind: kind, root: root, as: componentOf(kind), container: containerKCP,
		refs:    map[refKind]value{},
		files:   map[*yaml.Node]string{},
		origins: map[string]value{}, argsFrom: map[string]value{}, comments: map[string][]string{},
		on: func(string) bool { return true },
	}
}

// componentOf returns the kind of the component that objects of a kind describe, or "".
func componentOf(kind string) topology.Kind {
	return map[string]topology.Kind{
		kindRootShard: topology.RootShard, kindShard: topology.Shard, kindFrontProxy: topology.FrontProxy,
		kindCacheServer: topology.CacheServer, kindVirtualWorkspace: topology.VirtualWorkspaces,
	}[kind]
}

// String is the kind and the name.
func (o *object) String() string { return strings.TrimSpace(o.kind + " " + o.name) }

func (o *object) problem(problems ...setup.Problem) { o.problemIn(o.file, problems...) }

func (o *object) problemIn(file string, problems ...setup.Problem) {
	for _, p := range problems {
		p.File = file
		o.problems = append(o.problems, p)
	}
}

// fail adds a problem of the whole object.
func (o *object) fail(message, hint string) {
	o.problem(setup.Problem{Line: o.root.Line, Column: o.root.Column, Message: o.String() + ": " + message, Hint: hint})
}

// find adds a finding about the whole object.
func (o *object) find(kind Kind, why, instead string) {
	o.findings = append(o.findings, Finding{
		Kind: kind, File: o.file, Line: o.root.Line, Column: o.root.Column, Object: o.String(),
		Reason: why, Instead: instead,
	})
}

// comment adds a comment to a field of the setup file, which is relative as in a row.
func (o *object) comment(to, text string) { o.comments[to] = append(o.comments[to], text) }

// absolute returns the path in the setup file of the field of a row.
func (o *object) absolute(to string) string {
	switch {
	case strings.HasPrefix(to, "spec.") || strings.HasPrefix(to, "metadata."):
		return to
	case to == "":
		return o.prefix
	}
	return o.prefix + "." + to
}

// from returns the field of the input that became a field of the setup file, which is relative as in a row. It is the
// object itself if no field did: a flag can say it, too.
func (o *object) from(to string) value {
	if v, ok := o.origins[to]; ok {
		return v
	}
	return value{o: o, file: o.file, key: o.root, node: o.root}
}

// at selects the component that a row of a table sets.
type at func(*object) *object

func self(o *object) *object    { return o }
func proxy(o *object) *object   { return o.proxy }
func members(o *object) *object { return o.members }

// into returns the mapping of a field to one of the same type.
func into[T any](to func(*object) *T) func(value) {
	return func(v value) {
		var t T
		if v.node.ShortTag() != "!!null" && v.decode(&t) {
			*to(v.o) = t
		}
	}
}

// nothing maps a field that was already read, such as the name.
func nothing(value) {}

// keep returns the mapping of a field that is read when all objects are known.
func keep(to func(*object) *value) func(value) {
	return func(v value) {
		if !v.empty() {
			*to(v.o) = v
		}
	}
}

// bundle is the annotation of an object whose component kcp-operator bundles for another cluster (kcp-operator up to
// v0.9: cmd/bundle).
const bundle = "operator.kcp.io/bundle"

func annotations(v value) {
	fields, problems := setup.Fields(v.node, v.at)
	v.o.problem(problems...)
	others := false
	for _, f := range fields {
		if f.Key.Value == bundle && f.Value.Value == "true" {
			v.o.bundled = value{o: v.o, file: v.file, key: f.Key, node: f.Value, at: v.at.Key(bundle)}
			continue
		}
		others = true
	}
	if others {
		v.find(NotNeeded, "kcp-operator does not pass them on", "")
	}
}

// refer returns the mapping of a field with the name of another object.
func refer(kind refKind) func(value) {
	return func(v value) {
		var name string
		if v.decode(&name) && name != "" {
			v.o.refs[kind] = v
		}
	}
}

// ref returns the name that the object refers to, or "".
func (o *object) ref(kind refKind) string {
	if v, ok := o.refs[kind]; ok {
		return v.node.Value
	}
	return ""
}

// localReference is a reference to an object of the same namespace. Charts also have the name alone.
type localReference struct {
	Name string `json:"name"`
}

// pullSecrets maps the names of Secrets with registry credentials.
func pullSecrets(to func(*object) *[]string) func(value) {
	return func(v value) {
		if v.node.Kind == yaml.SequenceNode && len(v.node.Content) > 0 && v.node.Content[0].Kind == yaml.ScalarNode {
			into(to)(v)
			return
		}
		var refs []localReference
		if !v.decode(&refs) {
			return
		}
		*to(v.o) = nil
		for _, r := range refs {
			*to(v.o) = append(*to(v.o), r.Name)
		}
	}
}

func resources(who at) func(value) {
	return func(v value) {
		var r corev1.ResourceRequirements
		if v.decode(&r) {
			who(v.o).component.Resources = &r
		}
	}
}
