package render

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The templates of objects in workspaces.
const (
	workspaceTemplate   = "workspace.yaml"
	bindingTemplate     = "apibinding.yaml"
	roleTemplate        = "clusterrole.yaml"
	roleBindingTemplate = "clusterrolebinding.yaml"
)

// inWorkspace holds the values of the templates of objects in workspaces.
type inWorkspace struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
	// Type and Selector are fields of a Workspace. Selector also selects the namespaces of a policy.
	Type     map[string]string
	Selector map[string]string
	// ExportPath, ExportName and Claims are for an APIBinding.
	ExportPath, ExportName string
	Claims                 []dict
	// Rules are the rules of a ClusterRole, Role and Subjects are for a ClusterRoleBinding.
	Rules    []rbacv1.PolicyRule
	Role     string
	Subjects []rbacv1.Subject
	// Validations are the rules of a policy for pods.
	Validations []dict
}

// addIn renders a template to an object in a workspace, or on a physical cluster, with the labels and annotations by
// which runs recognize it.
func (b *objects) addIn(workspace, template string, data inWorkspace) {
	if b.err != nil {
		return
	}
	data.Labels = merged(data.Labels, WorkspaceLabels(b.c.Setup, b.r.state.Installation.ID))
	if data.Annotations == nil {
		data.Annotations = map[string]string{}
	}
	data.Annotations[topology.AnnotationComponent] = string(b.c.ID())
	obj, err := b.r.templates.object(template, data)
	if err != nil {
		b.err = err
		return
	}
	b.out = append(b.out, Object{Workspace: workspace, Component: b.c.ID(), Unstructured: obj})
}

// WorkspaceLabels returns the labels of every object in a workspace that belongs to an installation.
func WorkspaceLabels(setup, installation string) map[string]string {
	return map[string]string{
		topology.LabelSetup: setup, topology.LabelInstallation: installation,
		"app.kubernetes.io/managed-by": topology.ManagedBy,
	}
}

// workspace adds a workspace and its content.
func (b *objects) workspace() {
	ws := b.c.Workspace
	data := inWorkspace{Name: ws.Name, Selector: ws.Selector}
	if ws.Type != "" {
		path, name := topology.CutExport(ws.Type)
		data.Type = map[string]string{"name": name}
		if path != "" {
			data.Type["path"] = path
		}
	}
	if ws.Existing {
		data.Annotations = map[string]string{topology.AnnotationUse: topology.UseExisting}
	}
	b.addIn(ws.Parent, workspaceTemplate, data)
	b.access(ws)
	for _, binding := range ws.Bindings {
		b.binding(ws.Path, binding)
	}
}

// access adds the roles in a workspace, and lets their users and groups enter it.
func (b *objects) access(ws *topology.WorkspaceSpec) {
	var everybody []rbacv1.Subject
	for _, a := range ws.Access {
		subjects := subjectsOf(a)
		for _, s := range subjects {
			if !slices.Contains(everybody, s) {
				everybody = append(everybody, s)
			}
		}
		name, role := b.c.RoleName(a.Name), a.ClusterRole
		if len(a.Rules) > 0 {
			role = name
			b.addIn(ws.Path, roleTemplate, inWorkspace{Name: name, Rules: a.Rules})
		}
		if role != "" {
			b.addIn(ws.Path, roleBindingTemplate, inWorkspace{Name: name, Role: role, Subjects: subjects})
		}
	}
	if len(everybody) > 0 {
		b.addIn(ws.Path, roleBindingTemplate,
			inWorkspace{Name: b.c.AccessBinding(), Role: topology.AccessRole, Subjects: everybody})
	}
}

func subjectsOf(a v1alpha1.WorkspaceAccess) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, u := range a.Users {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u})
	}
	for _, g := range a.Groups {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: g})
	}
	return out
}

// binding adds an APIBinding. Of the APIExport of an agent it accepts what follows from the agent, if it is to accept
// everything. The claims of other APIExports are not known before it is applied.
func (b *objects) binding(workspace string, w v1alpha1.WorkspaceBinding) {
	data := inWorkspace{Name: w.Name}
	data.ExportPath, data.ExportName = topology.CutExport(w.Export)
	if w.AcceptAllClaims {
		data.Annotations = map[string]string{topology.AnnotationClaims: topology.AcceptAll}
		if a := b.agentOf(w.Export); a != nil {
			data.Annotations[topology.AnnotationClaims] = topology.AcceptDerived
			w.Claims = agent.PermissionClaims(a)
		}
	}
	for _, c := range w.Claims {
		selector := dict{"matchAll": true}
		if len(c.Selector) > 0 {
			selector = dict{"matchLabels": c.Selector}
		}
		data.Claims = append(data.Claims, dict{
			"group": c.Group, "resource": c.Resource, "identityHash": c.IdentityHash, "verbs": c.Verbs,
			"selector": selector, "state": "Accepted",
		})
	}
	b.addIn(workspace, bindingTemplate, data)
}

// agentOf returns the agent of the setup that publishes through an APIExport, or nil.
func (b *objects) agentOf(export string) *v1alpha1.Agent {
	for _, c := range b.r.t.Components {
		if c.Agent != nil && c.Agent.Workspace+":"+c.Agent.APIExport == export {
			return &c.Agent.Agent
		}
	}
	return nil
}

// userRoles adds the bindings of the cluster roles of a kubeconfig, in its workspace.
func (b *objects) userRoles() {
	group := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: pki.KubeconfigGroup(b.c)}}
	for _, role := range topology.WithAccess(b.c.Access.ClusterRoles) {
		b.addIn(b.c.Access.Workspace, roleBindingTemplate,
			inWorkspace{Name: b.c.KubeconfigBinding(role), Role: role, Subjects: group})
	}
}
