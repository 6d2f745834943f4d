package setup

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const defaultAgentRepository = "ghcr.io/kcp-dev/api-syncagent"

// defaultAgents sets the defaults of agents. They do not use spec.defaults, which is for kcp: its flags would end them.
func defaultAgents(spec *v1alpha1.Spec) {
	for i := range spec.Agents {
		a := &spec.Agents[i]
		fill(&a.Cluster, spec.RootShard.Cluster)
		fill(&a.Version, release.Agent(spec.Version))
		fill(&a.Image.Repository, defaultAgentRepository)
		fill(&a.Image.Tag, a.Version)
		fill(&a.Image.PullPolicy, spec.Image.PullPolicy)
		if a.Image.PullSecrets == nil {
			a.Image.PullSecrets = append([]string(nil), spec.Image.PullSecrets...)
		}
		fill(&a.APIExport, a.Name)
		if len(a.Bind) == 0 && a.Workspace != "" {
			a.Bind = []string{a.Workspace}
		}
		fillPointer(&a.Replicas, 1)
		fillPointer(&a.LogLevel, defaultLogLevel)
		if a.Resources == nil {
			a.Resources = resourcesOf("", topology.Agent)
		}
	}
}

type agentFields struct{ *fields }

// agents checks spec.agents, without the files that they refer to.
func (v *validator) agents() {
	exports := map[string]string{}
	bindings := map[string]string{}
	for i := range v.setup.Spec.Agents {
		a, p := &v.setup.Spec.Agents[i], field.NewPath("spec", "agents").Index(i)
		v.agentName(p.Child("name"), a.Name)
		v.unique(p.Child("name"), a.Name)
		if a.Cluster != v.setup.Spec.RootShard.Cluster { // checked already
			v.reference(p.Child("cluster"), "cluster", a.Cluster, v.clusterNames())
		}
		if reason := release.CheckAgent(a.Version); reason != "" {
			v.invalid(p.Child("version"), a.Version, "%s", reason)
		} else {
			v.image(p.Child("image"), v1alpha1.Image{Repository: a.Image.Repository, Digest: a.Image.Digest,
				PullPolicy: a.Image.PullPolicy, PullSecrets: a.Image.PullSecrets})
		}
		v.agentWorkspaces(p, a)
		v.apiExport(p.Child("apiExport"), a, exports)
		v.agentBindings(p.Child("bind"), a, bindings)
		v.published(p.Child("publishedResources"), a.PublishedResources)
		v.definitions(p.Child("definitions"), a.Definitions)
		v.permissions(p.Child("permissions"), a.Permissions)
		v.replicas(p, a.Replicas)
		v.defaults(p, v1alpha1.Defaults{Resources: a.Resources, ExtraArgs: a.ExtraArgs,
			ServerSettings: v1alpha1.ServerSettings{LogLevel: a.LogLevel}}, topology.Agent)
	}
}

// agentName requires a name of which the agent's names in its cluster, in kcp and in its certificate can be made.
func (v *validator) agentName(p *field.Path, name string) {
	setup := v.setup.Metadata.Name
	switch {
	case name == "":
		v.required(p, "")
	case len(validation.IsDNS1123Label(name)) > 0:
		v.invalid(p, name, labelFormat)
	case len(validation.IsDNS1035Label(name)) > 0:
		v.invalid(p, name, "must begin with a letter, because names of Services do")
	case len(topology.AgentUser(setup, name)) > maxSubject:
		v.invalid(p, name, "is too long: the common name %s has %d characters, and the limit of a certificate is %d",
			topology.AgentUser(setup, name), len(topology.AgentUser(setup, name)), maxSubject)
	}
}

func (v agentFields) agentWorkspaces(p *field.Path, a *v1alpha1.Agent) {
	if a.Workspace == "" {
		v.required(p.Child("workspace"), "the workspace of the APIExport, such as root:%s", a.Name)
	} else {
		v.workspacePath(p.Child("workspace"), a.Workspace)
	}
	for i, w := range a.Bind {
		if w != a.Workspace || i > 0 { // else it is the default
			v.workspacePath(p.Child("bind").Index(i), w)
		}
		v.unique(p.Child("bind").Index(i), w)
	}
}

// workspacePath requires the path of a workspace that kcpctl can create.
func (v *fields) workspacePath(p *field.Path, w string) {
	const segment = `[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`
	if !v.matches(`root(?::`+segment+`)*`, w) {
		v.invalid(p, w, "must be a workspace path such as root:team")
	}
}

// apiExport requires an APIExport of this agent alone: an agent writes its name on the APIExport and changes what it
// publishes (api-syncagent: internal/controller/apiexport/reconciler.go).
func (v agentFields) apiExport(p *field.Path, a *v1alpha1.Agent, exports map[string]string) {
	if a.APIExport != a.Name { // the default
		v.subdomain(p, a.APIExport)
	}
	key := a.Workspace + ":" + a.APIExport
	if other, taken := exports[key]; taken && other != a.Name {
		v.invalid(p, a.APIExport,
			"agent %s publishes through this APIExport: use another one, or publish these resources with that agent",
			other)
		return
	}
	exports[key] = a.Name
}

// agentBindings requires one agent for each APIBinding of a workspace: it has the name of its APIExport. bindings has
// the APIBindings of the agents before, after their workspaces, and their APIExports.
func (v agentFields) agentBindings(p *field.Path, a *v1alpha1.Agent, bindings map[string]string) {
	for i, w := range a.Bind {
		name := w + "/" + a.APIExport
		export := a.Workspace + ":" + a.APIExport
		if other, taken := bindings[name]; taken && other != export {
			v.invalid(p.Index(i), w, "this workspace binds %s already, and an APIBinding has the name of its "+
				"APIExport: use another apiExport for one of the agents", other)
			continue
		}
		bindings[name] = export
	}
}

// published checks that each published resource is either a file or a name and a spec.
func (v agentFields) published(p *field.Path, all []v1alpha1.PublishedResource) {
	if len(all) == 0 {
		v.required(p, "at least one resource that the agent publishes")
	}
	for i, r := range all {
		at := p.Index(i)
		switch {
		case r.File != "" && (r.Name != "" || r.Spec != nil):
			v.forbidden(at, "must have either file, or name and spec")
		case r.File != "":
		case r.Name == "" && r.Spec == nil:
			v.required(at, "either file, or name and spec")
		case r.Name == "":
			v.required(at.Child("name"), "")
		case r.Spec == nil:
			v.required(at.Child("spec"), "the spec of the PublishedResource")
		}
		if r.Name != "" {
			v.subdomain(at.Child("name"), r.Name)
		}
	}
}

// definitions requires CustomResourceDefinitions, each once, with the name that the API server requires (k8s:
// apiextensions-apiserver, pkg/apis/apiextensions/validation/validation.go). The API server checks the schemas.
func (v agentFields) definitions(p *field.Path, all []v1alpha1.Object) {
	for i, o := range all {
		at := p.Index(i)
		text := func(path ...string) string { s, _, _ := unstructured.NestedString(o, path...); return s }
		for _, want := range []struct{ key, value string }{
			{"apiVersion", "apiextensions.k8s.io/v1"}, {"kind", "CustomResourceDefinition"},
		} {
			if have := text(want.key); have == "" {
				v.required(at.Child(want.key), "%s", want.value)
			} else if have != want.value {
				v.invalid(at.Child(want.key), have, "must be %s", want.value)
			}
		}
		name, plural, group := text("metadata", "name"), text("spec", "names", "plural"), text("spec", "group")
		switch {
		case name == "":
			v.required(at.Child("metadata", "name"), "")
		case plural == "" || group == "":
			v.required(at.Child("spec"), "with group and names.plural")
		case name != plural+"."+group:
			v.invalid(at.Child("metadata", "name"), name,
				"must be %s.%s: the plural and the group in spec", plural, group)
		}
		v.unique(at.Child("metadata", "name"), name)
	}
}

// permissions checks rules as the API server does (k8s: pkg/apis/rbac/validation/validation.go, ValidatePolicyRule).
func (v agentFields) permissions(p *field.Path, rules []rbacv1.PolicyRule) {
	for i, r := range rules {
		at := p.Index(i)
		if len(r.Verbs) == 0 {
			v.required(at.Child("verbs"), "at least one verb")
		}
		switch {
		case len(r.NonResourceURLs) > 0 && len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0:
			v.forbidden(at.Child("nonResourceURLs"), "must be in a rule of their own")
		case len(r.NonResourceURLs) > 0:
		case len(r.APIGroups) == 0:
			v.required(at.Child("apiGroups"), `at least one API group: "" is the core group`)
		case len(r.Resources) == 0:
			v.required(at.Child("resources"), "at least one resource")
		}
		for n, resource := range r.Resources {
			if strings.ToLower(resource) != resource {
				v.invalid(at.Child("resources").Index(n), resource, "must be the plural in lower case, such as widgets")
			}
		}
	}
}
