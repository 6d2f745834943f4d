package setup

import (
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// maxSubject is the maximum length of a common name or organization in a certificate (RFC 5280, ub-common-name).
const maxSubject = 64

func (v *validator) kubeconfigs() {
	for i := range v.setup.Spec.Kubeconfigs {
		v.kubeconfig(field.NewPath("spec", "kubeconfigs").Index(i), &v.setup.Spec.Kubeconfigs[i])
	}
}

func (v *validator) kubeconfig(p *field.Path, k *v1alpha1.Kubeconfig) {
	v.target(p.Child("target"), k.Target)
	v.subject(p.Child("user"), k.User)
	for i, g := range k.Groups {
		v.subject(p.Child("groups").Index(i), g)
		v.unique(p.Child("groups").Index(i), g)
		dropped := slices.ContainsFunc(topology.AlwaysDropped,
			func(pattern string) bool { return matchesGroup(pattern, g) })
		if k.Target.Shard == "" && dropped {
			v.invalid(p.Child("groups").Index(i), g, "front-proxies drop this group, use %s", adminGroup)
		}
	}
	if !v.matches(workspacePath, k.Workspace) {
		v.invalid(p.Child("workspace"), k.Workspace,
			"must be a workspace path such as root:team, or the name of a logical cluster")
	}
	v.validity(p.Child("validity"), k.Validity.Duration)
	for i, r := range k.ClusterRoles {
		at := p.Child("clusterRoles").Index(i)
		if r == "" {
			v.required(at, "the name of a ClusterRole")
		} else if problems := path.IsValidPathSegmentName(r); len(problems) > 0 {
			v.invalid(at, r, "%s", strings.Join(problems, ", "))
		}
		v.unique(at, r)
	}
}

func (v *validator) target(p *field.Path, t v1alpha1.Target) {
	switch {
	case t.FrontProxy != "" && t.Shard != "":
		v.forbidden(p, "must have only one of frontProxy and shard")
	case t.Shard != "":
		v.reference(p.Child("shard"), "shard", t.Shard, v.shardNames())
	default:
		v.accepting(p.Child("frontProxy"), t.FrontProxy, frontProxyChoices(&v.setup.Spec))
	}
}

// subject requires a user or a group that fits into a certificate.
func (v *fields) subject(p *field.Path, s string) {
	switch {
	case s == "":
		v.required(p, "")
	case len(s) > maxSubject:
		v.invalid(p, s, "must have at most %d characters, the limit of a certificate", maxSubject)
	case s != strings.TrimSpace(s) || strings.ContainsFunc(s, unicode.IsControl):
		v.invalid(p, s, "must not start or end with a space, and must not contain control characters")
	}
}
