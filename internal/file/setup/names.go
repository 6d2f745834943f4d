package setup

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	// maxName is the limit of the names of most objects, such as Secrets, ConfigMaps and ServiceAccounts.
	maxName = validation.DNS1123SubdomainMaxLength
	// maxLabel is the limit of the names of Services, and of label values.
	maxLabel = validation.DNS1123LabelMaxLength
	// hashLength is the length of the hash that controllers add to a name, with its hyphen.
	hashLength = 11
)

// anyKind is the kind of a nameLimit for the parts of all components.
const anyKind topology.Kind = ""

// nameLimit is the longest name of an object: of the main one of a kind, or of one with a last part.
type nameLimit struct {
	kind  topology.Kind
	part  string
	limit int
}

// nameLimits has the limits that are shorter than maxName.
var nameLimits = []nameLimit{
	{topology.CacheServer, "", maxLabel}, // a Service
	{topology.RootShard, "", maxLabel},
	{topology.Shard, "", maxLabel},
	{topology.FrontProxy, "", maxLabel},
	{topology.VirtualWorkspaces, "", maxLabel},
	// The label controller-revision-hash of pods has the name of their StatefulSet (kubernetes/kubernetes#64023).
	{topology.Etcd, "", maxLabel - hashLength},
	{anyKind, topology.PeerService, maxLabel},
	{topology.Agent, "", maxLabel},                 // a label of what it publishes
	{topology.Workloads, "", maxName - hashLength}, // a Deployment, and its ReplicaSets
	{topology.Physical, "", maxName - hashLength},
}

// limitOf returns the limit of the name of an object.
func limitOf(k topology.Kind, part string) int {
	for _, l := range nameLimits {
		if l.part == part && (l.kind == k || l.kind == anyKind) {
			return l.limit
		}
	}
	return maxName
}

// named is a component, or a kubeconfig: the names of its objects are made of its name.
type named struct {
	kind topology.Kind
	name string
	// path is the field with the name, and owner what has it.
	path  *field.Path
	owner string
	// parts are the last parts of the names of its objects.
	parts []string
}

// object is the name of an object that a setup will have.
type object struct {
	named
	name  string
	limit int
}

// names are the names in a setup, and the names of objects that are derived from them.
type names struct{ *validator }

// check checks all names, and the names of objects that are derived from them.
func (v names) check() {
	name, path := v.setup.Metadata.Name, metadataName()
	switch {
	case name == "":
		v.required(path, "it is the prefix of every object")
	case len(validation.IsDNS1123Label(name)) > 0:
		v.invalid(path, name, labelFormat)
	case len(validation.IsDNS1035Label(name)) > 0:
		v.invalid(path, name, "must begin with a letter, because names of Services do")
	}
	if id := v.setup.Metadata.Installation; id != "" && !topology.IsInstallationID(id) {
		v.invalid(field.NewPath("metadata", "installation"), id,
			"must be the ID that kcpctl up prints: a name, a dash, and 8 letters or digits, such as demo-x7k2m9qd")
	}
	for _, p := range v.parts {
		if p.kind.Singleton() {
			continue
		}
		v.name(p.namePath(), p.name)
		v.unique(p.namePath(), p.name)
		if p.kind == topology.Shard && p.name == topology.RootShardName {
			v.invalid(p.namePath(), p.name, "the root shard has this name")
		}
	}
	for i, k := range v.setup.Spec.Kubeconfigs {
		at := field.NewPath("spec", "kubeconfigs").Index(i).Child("name")
		v.name(at, k.Name)
		v.unique(at, k.Name)
	}
	if len(v.errs) == 0 { // an invalid name makes the names of objects invalid
		v.objectNames()
	}
}

// named returns everything from whose names the names of objects are derived, without names that other checks refuse.
func (v names) named() []named {
	var out []named
	for _, p := range v.parts {
		out = append(out, named{p.kind, p.name, p.namePath(), p.path.String(), p.kind.Parts()})
		if p.etcd != nil && (*p.etcd).Managed != nil {
			out = append(out, named{topology.Etcd, p.id().ShortName(), p.namePath(), p.path.String(),
				topology.Etcd.Parts()})
		}
	}
	seen := map[topology.ID]bool{}
	item := func(k topology.Kind, list *field.Path, i int, name string, parts []string) {
		at, id := list.Index(i).Child("name"), topology.IDOf(k, name)
		if !seen[id] && len(validation.IsDNS1123Label(name)) == 0 {
			out = append(out, named{k, name, at, at.String(), parts})
		}
		seen[id] = true
	}
	spec, path := &v.setup.Spec, field.NewPath("spec")
	for i, k := range spec.Kubeconfigs {
		item(topology.Kubeconfig, path.Child("kubeconfigs"), i, k.Name, topology.Kubeconfig.Parts())
	}
	for i, a := range spec.Agents {
		item(topology.Agent, path.Child("agents"), i, a.Name, topology.Agent.Parts())
	}
	for i, c := range spec.Clusters {
		if spec.Monitoring != nil {
			item(topology.Monitoring, path.Child("clusters"), i, c.Name, topology.Monitoring.Parts())
		}
	}
	if w := spec.Workloads; w != nil {
		out = append(out, named{topology.Workloads, topology.ControllerName, metadataName(), metadataName().String(),
			topology.Workloads.Parts()})
		for i, c := range w.Clusters {
			parts := topology.Physical.Parts()
			if c.SyncMode != v1alpha1.SyncModePull {
				parts = []string{topology.TokenPart}
			}
			item(topology.Physical, path.Child("workloads", "clusters"), i, c.Name, parts)
		}
	}
	return out
}

// objects returns the names of all objects that could be too long or collide.
func (v names) objects() []object {
	var out []object
	for _, n := range v.named() {
		setup := v.setup.Metadata.Name
		out = append(out, object{n, topology.Object(setup, n.kind, n.name), limitOf(n.kind, "")})
		for _, part := range n.parts {
			out = append(out, object{n, topology.Object(setup, n.kind, n.name, part), limitOf(n.kind, part)})
		}
	}
	return out
}

// objectNames checks that the names of all objects are valid and unique.
func (v names) objectNames() {
	owners := map[string]string{}
	longest := map[string]object{}
	collided := map[string]bool{}
	for _, o := range v.objects() {
		if first, taken := owners[o.name]; taken && !collided[o.owner] {
			v.invalid(o.path, v.written(o), "its object %s would have the name of one of %s", o.name, first)
			collided[o.owner] = true
		} else if !taken {
			owners[o.name] = o.owner
		}
		if at := o.path.String(); o.over() > longest[at].over() {
			longest[at] = o
		}
	}
	if o, tooLong := longest[metadataName().String()]; tooLong {
		longest = map[string]object{"": o} // with a shorter setup name, the others may be short enough
	}
	for _, at := range slices.Sorted(maps.Keys(longest)) {
		v.tooLong(longest[at])
	}
}

// written returns the name in the file of which the name of an object is made.
func (v names) written(o object) string {
	if o.path.String() == metadataName().String() {
		return v.setup.Metadata.Name
	}
	return o.named.name
}

// over returns the number of characters by which the name is too long.
func (o object) over() int { return max(0, len(o.name)-o.limit) }

func (v names) tooLong(o object) {
	unit := "characters"
	if o.over() == 1 {
		unit = "character"
	}
	v.invalid(o.path, v.written(o), "is %d %s too long: the name of the object %s has %d, and the limit is %d",
		o.over(), unit, o.name, len(o.name), o.limit)
}

// part is a component and its path in the file.
type part struct {
	kind topology.Kind
	name string
	path *field.Path
	*v1alpha1.Component
	// etcd points to the component's etcd, and url is its URL. They are nil and empty if the kind has no etcd.
	etcd **v1alpha1.Etcd
	url  string
	// virtualWorkspaceURL is the URL of the virtual workspaces of a shard.
	virtualWorkspaceURL string
	// serves is the name of the shard that a server of virtual workspaces works for, and cached is set if there is a
	// cache server.
	serves string
	cached bool
	// custom is a server of virtual workspaces that is a server of the user.
	custom *v1alpha1.VirtualWorkspace
	// external is the address of a front-proxy for clients, and externalPath its path. It is nil for other kinds.
	external     *v1alpha1.External
	externalPath *field.Path
	// frontProxy is the name of the front-proxy that it dials, if the setup file names one.
	frontProxy string
}

// release returns the release of kcp that a component runs.
func (p part) release(spec v1alpha1.Spec) string {
	return topology.ReleaseIn(v1alpha1.Image{Tag: cmp.Or(p.Image.Tag, spec.Image.Tag)}, spec.Version)
}

// parts returns the components of a setup, in the order in which they start. Kinds with at most one component have no
// names.
func parts(s *v1alpha1.Setup) []part {
	spec, path := &s.Spec, field.NewPath("spec")
	var out []part
	if c := spec.CacheServer; c != nil {
		out = append(out, part{kind: topology.CacheServer, path: path.Child("cacheServer"), Component: &c.Component,
			etcd: &c.Etcd, url: c.URL})
	}
	root := &spec.RootShard
	out = append(out, part{
		kind: topology.RootShard, path: path.Child("rootShard"), Component: &root.Component, etcd: &root.Etcd,
		url: root.URL, virtualWorkspaceURL: root.VirtualWorkspaceURL,
		frontProxy: root.FrontProxy,
	})
	for i := range spec.Shards {
		c := &spec.Shards[i]
		out = append(out, part{
			kind: topology.Shard, name: c.Name, path: path.Child("shards").Index(i),
			Component: &c.Component, etcd: &c.Etcd, url: c.URL, virtualWorkspaceURL: c.VirtualWorkspaceURL,
			frontProxy: c.FrontProxy,
		})
	}
	for i := range spec.FrontProxies {
		c := &spec.FrontProxies[i]
		p := part{kind: topology.FrontProxy, name: c.Name, path: path.Child("frontProxies").Index(i),
			Component: &c.Component}
		p.external, p.externalPath = &c.External, p.path.Child("external")
		if i == 0 && c.External.Hostname == "" {
			p.external, p.externalPath = &spec.External, path.Child("external")
		}
		out = append(out, p)
	}
	for i := range spec.VirtualWorkspaces {
		c := &spec.VirtualWorkspaces[i]
		p := part{
			kind: topology.VirtualWorkspaces, name: c.Name, path: path.Child("virtualWorkspaces").Index(i),
			Component: &c.Component, url: c.URL, serves: c.Shard, cached: spec.CacheServer != nil,
			frontProxy: c.FrontProxy,
		}
		if c.Custom() {
			p.custom = c
		}
		out = append(out, p)
	}
	return out
}

// id returns the ID that the component will have.
func (p part) id() topology.ID { return topology.IDOf(p.kind, p.name) }

// inTopology returns the fields of the component that determine which others it dials.
func (p part) inTopology() *topology.Component {
	return &topology.Component{Kind: p.kind, Name: p.name, Serves: topology.ShardID(p.serves), CacheServer: p.cached,
		Custom: p.custom}
}

func metadataName() *field.Path { return field.NewPath("metadata", "name") }

// namePath is the field that determines the names of p's objects: its name, or the name of the setup.
func (p part) namePath() *field.Path {
	if p.kind.Singleton() {
		return metadataName()
	}
	return p.path.Child("name")
}
