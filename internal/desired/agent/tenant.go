package agent

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// tenancy checks that objects of a workspace lead only to Secrets of this workspace on the service cluster. The agent
// looks for a related object in the namespace of the copy, or in object.namespace, under a name that can come from the
// object, which users of the workspace write (api-syncagent: internal/sync/syncer_related.go,
// resolveRelatedResourceObjects). It may read all Secrets of its cluster.
func (v *validator) tenancy() {
	v.outside(v.path.Child("naming", "namespace"), v.spec.Naming.Namespace)
	for i := range v.spec.Related {
		r, p := &v.spec.Related[i], v.path.Child("related").Index(i).Child("object")
		if ns := r.Object.Namespace; ns != nil && ns.Template != nil {
			v.outside(p.Child("namespace", "template", "template"), ns.Template.Template)
		}
		if r.inService() == (schema.GroupResource{Resource: "secrets"}) {
			v.ownSecret(p, r)
		}
	}
}

// outside refuses a namespace with the keys of a setup, or with the credential of an agent.
func (v *validator) outside(p *field.Path, namespace string) {
	if slices.Contains(v.reserved, strings.TrimSpace(namespace)) {
		v.invalid(p, namespace, "is a namespace of the setup or of the agent, whose Secrets workspaces must not reach: use a namespace for each "+
			`workspace, such as "{{ .ClusterName }}"`)
	}
}

// ownSecret requires that a Secret is in a namespace of its workspace, or that users cannot choose its name.
func (v *validator) ownSecret(p *field.Path, r *related) {
	n := v.spec.Naming
	where := r.Object.Namespace
	ofCopy := n.Namespace == "" || namesWorkspace(n.Namespace)
	switch {
	case where == nil && ofCopy, where != nil && where.ofWorkspace(ofCopy, "namespace"):
	case where != nil && where.chosen("namespace"):
		v.invalid(p.Child("namespace"), "…", "users of a workspace can name a Secret of any namespace: "+
			"the namespace must contain .ClusterName, or be the one of the copy, with .ClusterName in naming.namespace")
	case r.Object.location.chosen("name") && !r.Object.location.ofWorkspace(false, ""),
		r.Object.location.named("name") && !namesWorkspace(n.Name):
		v.invalid(p, "…", "users of a workspace can name a Secret of another one, because workspaces share the namespace: "+
			"give each workspace a namespace, with .ClusterName in naming.namespace or in object.namespace")
	}
}

// Reserved returns the namespaces whose Secrets workspaces must not reach through an agent: the namespaces of the setup
// and of the agent, on its cluster.
func Reserved(s *v1alpha1.Setup, a *v1alpha1.Agent) []string {
	var out []string
	own := slices.IndexFunc(s.Spec.Clusters, func(c v1alpha1.Cluster) bool { return c.Name == a.Cluster })
	if own < 0 {
		return nil
	}
	for _, c := range s.Spec.Clusters {
		if at := s.Spec.Clusters[own]; c.Context == at.Context && c.Kubeconfig == at.Kubeconfig {
			out = append(out, c.Namespace)
		}
	}
	return out
}

// namesWorkspace reports whether a template contains the name of the logical cluster, or the path of the workspace.
func namesWorkspace(text string) bool {
	return slices.ContainsFunc([]string{".ClusterName", ".ClusterPath", "$remoteClusterName"},
		func(part string) bool { return strings.Contains(text, part) })
}

// ofWorkspace reports whether what is found belongs to one workspace: by the name of its logical cluster, or because it
// is a field of the metadata of the copy, whose value belongs to one workspace (copyDoes).
func (l *location) ofWorkspace(copyDoes bool, metadata string) bool {
	switch {
	case l.Template != nil && namesWorkspace(l.Template.Template):
		return true
	case l.Selector != nil:
		return slices.ContainsFunc(sortedKeys(l.Selector.MatchLabels),
			func(key string) bool { return namesWorkspace(l.Selector.MatchLabels[key]) })
	}
	return copyDoes && !l.chosen(metadata) && l.named(metadata)
}

// named reports whether what is found depends on a field of the metadata of the object.
func (l *location) named(metadata string) bool {
	switch {
	case l.Reference != nil:
		return l.Reference.Path == "metadata."+metadata
	case l.Template != nil:
		return strings.Contains(l.Template.Template, ".Object.metadata."+metadata)
	}
	return false
}

// chosen reports whether users can choose what is found: by a field of their object other than one of its metadata, or
// by labels.
func (l *location) chosen(metadata string) bool {
	switch {
	case l.Reference != nil:
		return l.Reference.Path != "metadata."+metadata
	case l.Template != nil:
		known := "namespace|uid"
		if metadata == "name" {
			known = "name|" + known
		}
		rest := regexp.MustCompile(`\.Object\.metadata\.(`+known+`)\b`).ReplaceAllString(l.Template.Template, "")
		return strings.Contains(rest, ".Object")
	}
	return l.Selector != nil
}
