package setup

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// authorizers are all of kcp, in their default order (kcp: pkg/server/options/authorization.go). The first two must
// not wait for another one, because probes have no permissions.
var authorizers = []string{"AlwaysAllowGroups", "AlwaysAllowPaths", "RBAC", "Webhook"}

// authorizationAt is the authorization of shards, and where it is.
type authorizationAt struct {
	*v1alpha1.Authorization
	at *field.Path
}

func authorizations(spec *v1alpha1.Spec) []authorizationAt {
	path := field.NewPath("spec")
	all := []authorizationAt{{spec.Authorization, path.Child("authorization")},
		{spec.RootShard.Authorization, path.Child("rootShard", "authorization")}}
	for i := range spec.Shards {
		at := path.Child("shards").Index(i).Child("authorization")
		all = append(all, authorizationAt{spec.Shards[i].Authorization, at})
	}
	return slices.DeleteFunc(all, func(a authorizationAt) bool { return a.Authorization == nil })
}

func defaultAuthorization(spec *v1alpha1.Spec) {
	for _, a := range authorizations(spec) {
		if w := a.Webhook; w != nil {
			fill(&w.Key, defaultWebhookKey)
			fill(&w.Version, defaultWebhookVersion)
		}
	}
}

func (v *validator) authorization() {
	for _, a := range authorizations(&v.setup.Spec) {
		if w := a.Webhook; w != nil {
			v.secretKey(a.at.Child("webhook"), w.SecretKey)
			oneOf(v.fields, a.at.Child("webhook", "version"), w.Version, "v1", "v1beta1")
		}
		v.authorizers(a)
		for i, p := range a.AlwaysAllowPaths {
			if !v.matches(`/[^ ,*]*\*?`, p) {
				v.invalid(a.at.Child("alwaysAllowPaths").Index(i), p, "must begin with /, and have * only at the end")
			}
		}
	}
}

// authorizers checks an order.
func (v *validator) authorizers(a authorizationAt) {
	at := a.at.Child("order")
	has := func(name string) bool { return slices.Contains(a.Order, name) }
	for i, name := range a.Order {
		oneOf(v.fields, at.Index(i), name, authorizers...)
		v.unique(at.Index(i), name)
		if name == "Webhook" && a.Webhook == nil {
			v.forbidden(at.Index(i), "there is no webhook: set webhook")
		}
	}
	if len(a.Order) == 0 {
		return
	}
	for _, name := range authorizers {
		if !has(name) && (name != "Webhook" || a.Webhook != nil) {
			v.required(at, "%s is missing", name)
		}
	}
	if has("AlwaysAllowGroups") && has("AlwaysAllowPaths") && len(a.Order) > 1 &&
		!(strings.HasPrefix(a.Order[0], "AlwaysAllow") && strings.HasPrefix(a.Order[1], "AlwaysAllow")) {
		v.forbidden(at, "AlwaysAllowGroups and AlwaysAllowPaths must come first: probes and kcp itself need them")
	}
}

// batteries are those that write no files. The others make a kubeconfig of an administrator (kcp:
// pkg/server/options/batteries).
var batteries = []string{"workspace-types", "metrics-viewer"}

// kcpSettings checks settings of all shards that are only flags.
func (v *validator) kcpSettings() {
	path := field.NewPath("spec")
	for i, b := range v.setup.Spec.Batteries {
		oneOf(v.fields, path.Child("batteries").Index(i), b, batteries...)
		v.unique(path.Child("batteries").Index(i), b)
	}
	home := v.setup.Spec.HomeWorkspaces
	for i, g := range home.CreatorGroups {
		if g == "" || strings.ContainsAny(g, "\r\n\"") {
			v.invalid(path.Child("homeWorkspaces", "creatorGroups").Index(i), g, "must be the name of a group")
		}
	}
	if len(home.CreatorGroups) > 0 && home.Enabled != nil && !*home.Enabled {
		v.forbidden(path.Child("homeWorkspaces", "creatorGroups"), "home workspaces are off")
	}
}
