package render

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/templates"
)

// onCluster holds the values of the templates of a ServiceAccount and its roles.
type onCluster struct {
	Kind, Name, Namespace string
	Labels                map[string]string
	Rules                 []rbacv1.PolicyRule
	RoleKind              string
	Subjects              []rbacv1.Subject
}

// agent adds the objects of an agent: first the objects in workspaces of kcp, because the agent ends without its
// APIExport, then the objects on its cluster.
func (b *objects) agent(w workload) {
	if b.c.Cluster.Local && b.c.Agent.ServicePlace == "" && b.err == nil {
		b.err = clierr.New(clierr.BadInput,
			fmt.Sprintf("in the setup file, give the cluster a context, or a workspace that takes its place: "+
				"clusters: [{name: %s, workspace: root:services}]",
				b.c.Agent.Cluster),
			"with --local, an agent publishes the APIs of a cluster that the setup file names, or of a workspace, and the cluster %s has neither "+
				"context, kubeconfig nor workspace", b.c.Agent.Cluster)
	}
	b.export()
	b.service()
	if b.c.Replicated() {
		b.add(pdbTemplate, w)
	}
	b.add(deploymentTemplate, w, podOverlays(b.c.PodTemplates)...)
}

// agentName returns the name of the agent in its cluster and in kcp.
func (b *objects) agentName() string { return topology.AgentName(b.c.Setup, b.c.Name) }

// export adds the objects in the workspace of the APIExport, and the APIBindings of its consumers. The agent adds the
// resources and the claims to the APIExport.
func (b *objects) export() {
	a := b.c.Agent
	b.existing(a.Workspace)
	b.addIn(a.Workspace, exportTemplate, inWorkspace{Name: a.APIExport})
	b.roleIn(a.Workspace, agent.RulesInWorkspace(&a.Agent))
	for _, consumer := range a.Bind {
		if consumer != a.Workspace {
			b.existing(consumer)
		}
		b.binding(consumer, v1alpha1.WorkspaceBinding{Name: a.APIExport, Export: a.Workspace + ":" + a.APIExport,
			AcceptAllClaims: true})
	}
}

// existing adds a workspace that is created if it does not exist, unless it is one of the setup.
func (b *objects) existing(path string) {
	parent, name, ok := topology.CutWorkspace(path)
	if ok && b.r.t.Component(topology.IDOf(topology.Workspace, path)) == nil {
		b.addIn(parent, workspaceTemplate, inWorkspace{
			Name: name, Annotations: map[string]string{topology.AnnotationUse: topology.UseExisting},
		})
	}
}

// roleIn lets an agent or a controller enter a workspace, and gives it rules there.
func (b *objects) roleIn(workspace string, rules []rbacv1.PolicyRule) {
	name := b.c.WorkspaceRole()
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: b.r.state.User(b.c)}}
	b.addIn(workspace, roleTemplate, inWorkspace{Name: name, Rules: rules})
	b.addIn(workspace, roleBindingTemplate, inWorkspace{Name: name, Role: name, Subjects: user})
	b.addIn(workspace, roleBindingTemplate,
		inWorkspace{Name: name + ":access", Role: topology.AccessRole, Subjects: user})
}

// service adds the objects on the agent's cluster, or in the workspace that takes its place.
func (b *objects) service() {
	ns := b.c.ServiceNamespace()
	rules := agent.RulesInServiceCluster(&b.c.Agent.Agent, ns)
	if path := b.c.Agent.ServiceWorkspace(); path != "" {
		b.existing(path)
		all := rules.Cluster
		for _, of := range slices.Sorted(maps.Keys(rules.Namespaces)) {
			all = append(all, rules.Namespaces[of]...)
		}
		b.roleIn(path, all)
	} else {
		b.agentAccount(ns, rules)
	}
	b.definition()
	for _, p := range b.c.Agent.PublishedResources {
		b.published(p)
	}
}

// agentAccount adds the ServiceAccount of an agent and its roles. The rules for another namespace are in the
// ClusterRole, because the objects of a setup are in its own namespace, or in none.
func (b *objects) agentAccount(ns string, rules agent.ServiceRules) {
	first := len(b.out)
	everywhere := slices.Clone(rules.Cluster)
	for _, other := range slices.Sorted(maps.Keys(rules.Namespaces)) {
		if other != ns {
			everywhere = append(everywhere, rules.Namespaces[other]...)
		}
	}
	b.account(ns, everywhere, rules.Namespaces[ns])
	if place := b.c.Agent.ServicePlace; place != "" {
		b.moveTo(place, b.out[first:])
		b.addIn(place, syncerNamespaceTemplate,
			inWorkspace{Name: ns, Annotations: map[string]string{topology.AnnotationUse: topology.UseExisting}})
	}
}

// account adds the ServiceAccount of a component that uses the API of its cluster, and its roles: a ClusterRole, and a
// Role in the namespace of the account if it has rules.
func (b *objects) account(ns string, everywhere, inNamespace []rbacv1.PolicyRule) {
	name, labels := b.c.Object(), b.c.Labels
	b.add(serviceAccountTemplate, onCluster{Name: name, Namespace: ns, Labels: labels()})
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: ns}}
	for _, r := range []onCluster{
		{Kind: "Role", Name: name, Namespace: ns, Rules: inNamespace},
		{Kind: "ClusterRole", Name: b.c.ClusterRole(), Rules: everywhere},
	} {
		if len(r.Rules) == 0 {
			continue
		}
		r.Labels = labels()
		b.add(agentRoleTemplate, r)
		r.Kind, r.RoleKind, r.Rules, r.Subjects, r.Labels = r.Kind+"Binding", r.Kind, nil, subject, labels()
		b.add(agentBindingTemplate, r)
	}
}

// moveTo moves objects from a cluster of the setup to a place, with the labels and annotations by which runs recognize
// them there.
func (b *objects) moveTo(place string, all []Object) {
	for i := range all {
		o := &all[i]
		o.Cluster = ""
		o.Workspace = place
		o.SetLabels(merged(o.GetLabels(), WorkspaceLabels(b.c.Setup, b.r.state.Installation.ID)))
		o.SetAnnotations(merged(o.GetAnnotations(), map[string]string{topology.AnnotationComponent: string(b.c.ID())}))
	}
}

// clusterCredential adds the Secret with the credential of a component on this machine for a cluster. It is filled when
// it is applied, because API servers issue tokens. The process reads the token again when its file changes.
func (b *objects) clusterCredential(credential topology.ClusterCredential) source {
	s := source{secret: b.c.Object(credential.Part), items: []item{
		{key: KubeconfigKey, path: files.Kubeconfig(credential.Kubeconfig)},
		{key: TokenKey, path: files.Token(credential.Kubeconfig)},
	}}
	b.add(secretTemplate, b.data(s.secret, "Opaque", map[string][]byte{KubeconfigKey: nil, TokenKey: nil}))
	if b.err == nil {
		b.out[len(b.out)-1].SetAnnotations(map[string]string{
			topology.AnnotationCredential: credential.Place, topology.AnnotationComponent: string(b.c.ID()),
		})
	}
	return s
}

// published adds a PublishedResource, with the label by which the agent selects it.
func (b *objects) published(p v1alpha1.PublishedResource) {
	data := inWorkspace{Name: p.Name, Labels: map[string]string{topology.LabelAgent: b.agentName()}}
	if place := b.c.Agent.ServicePlace; place != "" {
		b.addIn(place, publishedTemplate, data)
	} else {
		data.Labels = merged(b.c.Labels(), data.Labels)
		b.add(publishedTemplate, data)
	}
	if b.err == nil { // as it is: a template would lose its empty objects
		last := b.out[len(b.out)-1]
		last.Object["spec"], b.err = plain(p.Spec)
	}
}

// definition adds the CustomResourceDefinitions of PublishedResources and of the kinds to publish. All setups of a
// cluster share them, so they have no labels of this one.
func (b *objects) definition() {
	if b.err != nil {
		return
	}
	crd, err := agentDefinition()
	if err != nil {
		b.err = err
		return
	}
	b.shared(crd, map[string]string{topology.AnnotationRelease: release.NewestAgent})
	for _, d := range b.c.Agent.Definitions {
		var fields any
		if fields, b.err = plain(d); b.err != nil {
			return
		}
		object, _ := fields.(map[string]any)
		b.shared(&unstructured.Unstructured{Object: object}, nil)
	}
}

// shared adds a CustomResourceDefinition with annotations. It is created if it does not exist, and never removed.
func (b *objects) shared(crd *unstructured.Unstructured, notes map[string]string) {
	o := Object{Cluster: b.c.Cluster.Name, Workspace: b.c.Agent.ServicePlace, Component: b.c.ID(), Unstructured: crd}
	if o.Workspace != "" {
		notes = merged(notes, map[string]string{
			topology.AnnotationUse: topology.UseExisting, topology.AnnotationComponent: string(b.c.ID()),
		})
		crd.SetLabels(WorkspaceLabels(b.c.Setup, b.r.state.Installation.ID))
	}
	crd.SetAnnotations(merged(crd.GetAnnotations(), notes))
	b.out = append(b.out, o)
}

// agentDefinition returns the CustomResourceDefinition of the api-syncagent. It is read as it is: its texts contain
// braces.
func agentDefinition() (*unstructured.Unstructured, error) {
	raw, err := templates.FS.ReadFile(definitionFile)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", definitionFile, err)
	}
	js, err := yaml.YAMLToJSON(bytes.TrimSpace(raw))
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", definitionFile, err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(js); err != nil {
		return nil, fmt.Errorf("template %s: %w", definitionFile, err)
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	return o, nil
}

// merged returns the entries of both maps. Entries of over take precedence.
func merged(base, over map[string]string) map[string]string {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, over)
	return out
}
