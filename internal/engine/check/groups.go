package check

import (
	"context"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// issuersOfGroups looks for issuers that can put their users into any group, such as the group of administrators, which
// front-proxies do not remove (kcp: pkg/proxy/options/authentication.go). A setup file cannot add it to dropGroups,
// because kcpctl itself uses it.
func issuersOfGroups(_ context.Context, s *Subject) (o outcome) {
	var issuers []string
	at := map[string][]string{}
	for _, c := range slices.Concat(s.Topology.FrontProxies(), s.Topology.Shards()) {
		a := c.Authentication
		if a == nil {
			continue
		}
		for _, issuer := range anyGroup(*a) {
			if !slices.Contains(issuers, issuer) {
				issuers = append(issuers, issuer)
			}
			at[issuer] = append(at[issuer], string(c.ID()))
		}
	}
	for _, issuer := range issuers {
		o.warn("%s can put its users into any group, such as %s, at %s", issuer, pki.GroupAdmin, list(at[issuer]))
	}
	return o
}

// anyGroup returns the issuers whose groups have no prefix. Rules about users may refuse such groups.
func anyGroup(a topology.Authentication) []string {
	var out []string
	if o := a.OIDC; o != nil && o.GroupsClaim != "" && o.GroupsPrefix == "" {
		out = append(out, o.IssuerURL)
	}
	if a.Config == nil {
		return out
	}
	for _, j := range a.Config.JWT {
		g := j.ClaimMappings.Groups
		if g != nil && g.Claim != "" && (g.Prefix == nil || *g.Prefix == "") && len(j.UserValidationRules) == 0 {
			out = append(out, j.Issuer.URL)
		}
	}
	return out
}
