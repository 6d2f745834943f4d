package setup

import (
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// maxSubject is the longest common name or organization of a certificate (RFC 5280, ub-common-name).
const maxSubject = 64

func (v *validator) kubeconfigs() {
	for i := range v.setup.Spec.Kubeconfigs {
		v.kubeconfig(field.NewPath("spec", "kubeconfigs").Index(i), &v.setup.Spec.Kubeconfigs[i])
	}
}

func (v *validator) kubeconfig(p *field.Path, k *v1alpha1.Kubeconfig) {
	v.target(p.Child("target"), k.Target)
	v.subject(p.Child("user"), k.User)
	seen := map[string]bool{}
	for i, g := range k.Groups {
		v.subject(p.Child("groups").Index(i), g)
		v.unique(p.Child("groups").Index(i), g, seen)
		if k.Target.Shard == "" && slices.Contains(strippedGroups(), g) {
			v.invalid(p.Child("groups").Index(i), g, "front-proxies take this group away, use %s", adminGroup)
		}
	}
	const segment = `[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`
	if !v.matches(segment+`(?::`+segment+`)*`, k.Workspace) {
		v.invalid(p.Child("workspace"), k.Workspace, "must be a path such as root:team, or the name of a logical cluster")
	}
	v.validity(p.Child("validity"), k.Validity.Duration)
	seen = map[string]bool{}
	for i, r := range k.ClusterRoles {
		at := p.Child("clusterRoles").Index(i)
		if r == "" {
			v.required(at, "the name of a ClusterRole")
		} else if problems := path.IsValidPathSegmentName(r); len(problems) > 0 {
			v.invalid(at, r, "%s", strings.Join(problems, ", "))
		}
		v.unique(at, r, seen)
	}
}

// strippedGroups are the groups that a front-proxy drops from whoever comes through it
// (kcp: pkg/proxy/options/authentication.go).
func strippedGroups() []string {
	return []string{"system:masters", "system:kcp:logical-cluster-admin"}
}

func (v *validator) target(p *field.Path, t v1alpha1.Target) {
	var proxies []string
	for i := range v.setup.Spec.FrontProxies {
		proxies = append(proxies, v.setup.Spec.FrontProxies[i].Name)
	}
	switch {
	case t.FrontProxy != "" && t.Shard != "":
		v.forbidden(p, "must be one of frontProxy and shard, not both")
	case t.Shard != "":
		v.reference(p.Child("shard"), "shard", t.Shard, v.shardNames())
	default:
		v.reference(p.Child("frontProxy"), "front-proxy", t.FrontProxy, proxies)
	}
}

// subject wants a user or a group as a certificate can hold it.
func (v *validator) subject(p *field.Path, s string) {
	switch {
	case s == "":
		v.required(p, "")
	case len(s) > maxSubject:
		v.invalid(p, s, "is longer than the %d characters that a certificate can hold", maxSubject)
	case s != strings.TrimSpace(s) || strings.ContainsFunc(s, unicode.IsControl):
		v.invalid(p, s, "must not begin or end with a space, nor hold control characters")
	}
}
