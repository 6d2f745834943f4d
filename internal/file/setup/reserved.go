package setup

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// reservedNames are the prefixes of users and groups that kcp and kcpctl give permissions to.
func reservedNames() []string { return []string{"system:", "kcpctl:"} }

// noPrefix is the value of usernamePrefix for none (k8s: pkg/kubeapiserver/options/authentication.go).
const noPrefix = "-"

// issuerPrefix refuses a prefix with which names of an issuer can be reserved ones: system: and kcp:admin make
// system:kcp:admin.
func (v authenticationFields) issuerPrefix(p *field.Path, prefix string) {
	for _, reserved := range reservedNames() {
		if prefix != "" && (strings.HasPrefix(reserved, prefix) || strings.HasPrefix(prefix, reserved)) {
			v.invalid(p, prefix, "with this prefix, the issuer can give its users names or groups that begin with %s, which have permissions in kcp: "+
				"use another one, such as oidc:", reserved)
			return
		}
	}
}

// exposures are notes about what gives users more than the setup file seems to.
func exposures(s *v1alpha1.Setup) []string {
	spec := &s.Spec
	out := ofAuthentication("spec.authentication", spec.Authentication.FrontProxyAuthentication)
	for i := range spec.FrontProxies {
		p := &spec.FrontProxies[i]
		at := fmt.Sprintf("spec.frontProxies[%d]", i)
		out = append(out, ofAuthentication(at+".authentication", p.Authentication)...)
	}
	for i, k := range spec.Kubeconfigs {
		if strings.HasPrefix(k.User, "kcpctl:") {
			out = append(out, fmt.Sprintf("spec.kubeconfigs[%d].user: %s has the permissions of a component of "+
				"kcpctl with this name", i, k.User))
		}
	}
	out = append(out, ofShards(s)...)
	return append(out, ofAccess("spec.workspaces", spec.Workspaces)...)
}

// maxShardNames is how many shards a note lists.
const maxShardNames = 3

// ofShards is the note about shards that serve requests without credentials outside of their clusters. Their rules for
// permissions refuse nearly all of these, and users can add rules to their workspaces.
func ofShards(s *v1alpha1.Setup) []string {
	var at, shards []string
	for _, p := range parts(s) {
		if open := p.openings(s); p.kind.IsShard() && len(open) > 0 {
			at, shards = append(at, open[0].String()), append(shards, string(p.id()))
		}
	}
	if len(shards) == 0 || !*s.Spec.Authentication.Anonymous {
		return nil
	}
	return []string{fmt.Sprintf("%s: clients from outside of the cluster reach %s without credentials, as "+
		"system:anonymous: set spec.authentication.anonymous to false, and only %s need none", at[0],
		gather.Few(shards, maxShardNames, ", "), strings.Join(topology.HealthPaths, ", "))}
}

// ofAuthentication are the notes about who can be in any group, or have any name.
func ofAuthentication(at string, a v1alpha1.FrontProxyAuthentication) (out []string) {
	const anyGroup = "can put its users into any group, such as " + adminGroup
	if o := a.OIDC; o != nil {
		if o.GroupsClaim != "" && o.GroupsPrefix == "" {
			out = append(out, fmt.Sprintf("%s.oidc.groupsPrefix: without it, %s %s", at, o.IssuerURL, anyGroup))
		}
		if o.UsernamePrefix == noPrefix {
			out = append(out, fmt.Sprintf("%s.oidc.usernamePrefix: without a prefix, %s can give a user any name, "+
				"such as that of an agent", at, o.IssuerURL))
		}
	}
	if a.TokenFile != nil {
		out = append(out, fmt.Sprintf("%s.tokenFile: a user who writes the Secret %s can put users into any "+
			"group, such as %s", at, a.TokenFile.Secret, adminGroup))
	}
	if a.Webhook != nil {
		out = append(out, fmt.Sprintf("%s.webhook: the webhook %s", at, anyGroup))
	}
	return out
}

// ofAccess are the notes about workspaces that everybody may use.
func ofAccess(at string, all []v1alpha1.Workspace) (out []string) {
	for i := range all {
		here := fmt.Sprintf("%s[%d]", at, i)
		for n, a := range all[i].Access {
			for _, group := range a.Groups {
				switch {
				case group == "system:unauthenticated":
					out = append(out, fmt.Sprintf("%s.access[%d]: everybody may use workspace %s without logging in",
						here, n, all[i].Name))
				case group == "system:authenticated" && a.ClusterRole == "cluster-admin":
					out = append(out, fmt.Sprintf("%s.access[%d]: everybody who can log in is an administrator of "+
						"workspace %s", here, n, all[i].Name))
				}
			}
		}
		out = append(out, ofAccess(here+".workspaces", all[i].Workspaces)...)
	}
	return out
}
