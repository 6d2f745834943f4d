package setup

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

const (
	// maxWorkspacePath is the maximum length of the path of a workspace: render has files with its name.
	maxWorkspacePath = 200
	// canaryPrefix is the beginning of the names of the workspaces that up creates for a moment.
	canaryPrefix = "kcpctl-canary-"
	// segment and workspacePath are patterns of kcp (kcp: config/crds/apis.kcp.io_apibindings.yaml,
	// spec.reference.export.path).
	segment       = `[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`
	workspacePath = segment + `(?::` + segment + `)*`
	typeName      = `[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?`
)

func defaultWorkspaces(all []v1alpha1.Workspace) {
	for i := range all {
		w := &all[i]
		for k := range w.Access {
			fill(&w.Access[k].Name, w.Access[k].ClusterRole)
		}
		for k := range w.Bindings {
			b := &w.Bindings[k]
			_, name := topology.CutExport(b.Export)
			fill(&b.Name, name)
			for n := range b.Claims {
				if len(b.Claims[n].Verbs) == 0 {
					b.Claims[n].Verbs = []string{"*"}
				}
			}
		}
		defaultWorkspaces(w.Workspaces)
	}
}

// workspaceFields checks fields of spec.workspaces.
type workspaceFields struct{ *fields }

func (v *validator) workspaces() {
	all := v.setup.Spec.Workspaces
	if len(all) == 0 {
		return
	}
	p := field.NewPath("spec", "workspaces")
	accepts := false
	for _, c := range frontProxyChoices(&v.setup.Spec) {
		accepts = accepts || c.ClientCertificates
	}
	if !accepts {
		v.forbidden(p, "no front-proxy accepts client certificates, with which kcpctl applies workspaces")
	}
	v.workspacesIn(p, topology.RootWorkspace, all)
}

func (v *validator) workspacesIn(p *field.Path, parent string, all []v1alpha1.Workspace) {
	for i := range all {
		at, w := p.Index(i), &all[i]
		v.workspaceName(at.Child("name"), parent, w.Name)
		v.unique(at.Child("name"), w.Name)
		if w.Type != "" && !v.matches(`(?:`+workspacePath+`:)?`+typeName, w.Type) {
			v.invalid(at.Child("type"), w.Type,
				"must be the name of a WorkspaceType such as universal, or with its path, such as root:universal")
		}
		v.workspaceSelector(at.Child("selector"), w.Selector)
		v.access(at.Child("access"), w.Access)
		v.bindings(at.Child("bindings"), w.Bindings)
		v.bindingsOfAgents(at.Child("bindings"), topology.ChildPath(parent, w.Name), w.Bindings)
		v.workspacesIn(at.Child("workspaces"), topology.ChildPath(parent, w.Name), w.Workspaces)
	}
}

func (v workspaceFields) workspaceName(p *field.Path, parent, name string) {
	switch {
	case name == "":
		v.required(p, "")
	case len(validation.IsDNS1123Label(name)) > 0:
		v.invalid(p, name, "must be a DNS label: at most 63 lower case letters, digits and hyphens, with a letter "+
			"or digit at both ends")
	case strings.HasPrefix(name, canaryPrefix):
		v.invalid(p, name, "the prefix %s is for the workspaces with which kcpctl up tests shards", canaryPrefix)
	case len(topology.ChildPath(parent, name)) > maxWorkspacePath:
		v.invalid(p, name, "the path %s must have at most %d characters",
			topology.ChildPath(parent, name), maxWorkspacePath)
	}
}

// workspaceSelector requires that a shard of the setup has the labels.
func (v *validator) workspaceSelector(p *field.Path, selector map[string]string) {
	if len(selector) == 0 {
		return
	}
	before := len(v.errs)
	v.labelMap(p, selector)
	if len(v.errs) > before {
		return
	}
	spec := &v.setup.Spec
	have := []labels.Set{topology.SchedulingLabels(topology.RootShardName,
		topology.ShardLabels(spec.Clusters, spec.RootShard.ShardSpec))}
	for i := range spec.Shards {
		have = append(have, topology.SchedulingLabels(spec.Shards[i].Name,
			topology.ShardLabels(spec.Clusters, spec.Shards[i].ShardSpec)))
	}
	var known []string
	for _, all := range have {
		if labels.SelectorFromSet(selector).Matches(all) {
			return
		}
		known = append(known, all.String())
	}
	v.invalid(p, labels.Set(selector).String(), "no shard of the setup has these labels; the shards have %s",
		gather.Few(known, gather.Listed, "; "))
}

func (v workspaceFields) access(p *field.Path, all []v1alpha1.WorkspaceAccess) {
	for i, a := range all {
		at := p.Index(i)
		if a.ClusterRole != "" && len(a.Rules) > 0 {
			v.forbidden(at.Child("rules"), "an access has either a clusterRole or rules")
		}
		if len(a.Rules) > 0 && a.Name == "" {
			v.required(at.Child("name"), "an access with rules needs a name")
		}
		for _, f := range []struct{ key, value string }{{"clusterRole", a.ClusterRole}, {"name", a.Name}} {
			if problems := path.IsValidPathSegmentName(f.value); f.value != "" && len(problems) > 0 {
				v.invalid(at.Child(f.key), f.value, "%s", strings.Join(problems, ", "))
			}
		}
		if a.Name != "" {
			v.unique(at.Child("name"), a.Name)
		}
		if len(a.Users)+len(a.Groups) == 0 {
			v.required(at.Child("users"), "an access needs users or groups")
		}
		v.subjectNames(at.Child("users"), a.Users)
		v.subjectNames(at.Child("groups"), a.Groups)
		for n, r := range a.Rules {
			v.rule(at.Child("rules").Index(n), r)
		}
	}
}

// subjectNames requires names of users or groups, each once.
func (v workspaceFields) subjectNames(p *field.Path, all []string) {
	for i, name := range all {
		if strings.TrimSpace(name) == "" {
			v.required(p.Index(i), "")
		}
		v.unique(p.Index(i), name)
	}
}

func (v workspaceFields) rule(p *field.Path, r rbacv1.PolicyRule) {
	if len(r.Verbs) == 0 {
		v.required(p.Child("verbs"), "")
	}
	switch {
	case len(r.NonResourceURLs) > 0 && len(r.Resources) > 0:
		v.forbidden(p.Child("nonResourceURLs"), "a rule has either resources or nonResourceURLs")
	case len(r.NonResourceURLs) > 0:
	case len(r.Resources) == 0:
		v.required(p.Child("resources"), "")
	case len(r.APIGroups) == 0:
		v.required(p.Child("apiGroups"), `"" is the core group`)
	}
}

func (v workspaceFields) bindings(p *field.Path, all []v1alpha1.WorkspaceBinding) {
	for i, b := range all {
		at := p.Index(i)
		switch {
		case b.Export == "":
			v.required(at.Child("export"),
				"an APIExport with the path of its workspace, such as root:widgets:widgets.example.com")
		case !v.matches(workspacePath+`:[a-z0-9][a-z0-9.-]*`, b.Export):
			v.invalid(at.Child("export"), b.Export,
				"must be an APIExport with the path of its workspace, such as root:widgets:widgets.example.com")
		case len(validation.IsDNS1123Subdomain(b.Name)) > 0:
			v.invalid(at.Child("name"), b.Name, "%s", strings.Join(validation.IsDNS1123Subdomain(b.Name), ", "))
		}
		v.unique(at.Child("name"), b.Name)
		if b.AcceptAllClaims && len(b.Claims) > 0 {
			v.forbidden(at.Child("claims"), "acceptAllClaims accepts all of them")
		}
		v.claims(at.Child("claims"), b.Claims)
	}
}

// bindingsOfAgents refuses bindings that wait for an agent which waits for their workspace, and bindings with the name
// of an APIBinding of an agent.
func (v *validator) bindingsOfAgents(p *field.Path, workspace string, all []v1alpha1.WorkspaceBinding) {
	for i, b := range all {
		for j := range v.setup.Spec.Agents {
			a := &v.setup.Spec.Agents[j]
			switch own := b.Export == a.Workspace+":"+a.APIExport; {
			case own && topology.AgentUses(a, workspace):
				v.invalid(p.Index(i).Child("export"), b.Export,
					"agent %s publishes it, and needs this workspace first: bind it with bind of the agent instead",
					a.Name)
			case !own && b.Name == a.APIExport && slices.Contains(a.Bind, workspace):
				v.invalid(p.Index(i).Child("name"), b.Name,
					"agent %s has an APIBinding of this name in the workspace: use another name", a.Name)
			}
		}
	}
}

func (v workspaceFields) claims(p *field.Path, all []v1alpha1.PermissionClaim) {
	for i, c := range all {
		at := p.Index(i)
		switch {
		case c.Resource == "":
			v.required(at.Child("resource"), "such as configmaps")
		case !v.matches(`[a-z][-a-z0-9]*[a-z0-9]`, c.Resource):
			v.invalid(at.Child("resource"), c.Resource, "must be the name of a resource, such as configmaps")
		}
		v.unique(at.Child("resource"), strings.Trim(c.Resource+"."+c.Group+" "+c.IdentityHash, ". "))
		if len(c.Selector) > 0 {
			v.labelMap(at.Child("selector"), c.Selector)
		}
	}
}
