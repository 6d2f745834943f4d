package agent

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Claim is a resource of consumers that an APIExport claims, with all verbs and for all objects.
type Claim struct {
	schema.GroupResource
	// IdentityHash is the identity of the APIExport that provides the resource. It is empty for resources of kcp
	// itself.
	IdentityHash string
}

// Claims returns the permission claims that an agent adds to its APIExport, and that consumers must accept
// (api-syncagent: internal/controller/apiexport/controller.go): events always, namespaces for related resources and
// filters, the logical cluster for the paths of workspaces, and all related resources that the agent does not publish
// itself.
func Claims(a *v1alpha1.Agent) []Claim {
	own := map[schema.GroupResource]bool{}
	for _, k := range Kinds(a) {
		own[k.Projected] = true
	}
	namespaces := schema.GroupResource{Resource: "namespaces"}
	claims := map[Claim]bool{{GroupResource: schema.GroupResource{Resource: "events"}}: true}
	for _, p := range a.PublishedResources {
		s := decode(p.Spec)
		if s.Filter.Namespace != nil || len(s.Related) > 0 {
			claims[Claim{GroupResource: namespaces}] = true
		}
		if s.EnableWorkspacePaths {
			claims[Claim{GroupResource: kcpapi.LogicalCluster.GroupResource()}] = true
		}
		for _, r := range s.Related {
			if in := r.inKcp(); !own[in] {
				claims[Claim{GroupResource: in, IdentityHash: r.IdentityHash}] = true
			}
		}
	}
	var out []Claim
	for c := range claims {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.IdentityHash, b.IdentityHash))
	})
	return out
}

// PermissionClaims returns the Claims as an APIBinding accepts them: with all verbs, which the agent requests, and
// without which kcp would allow none of them.
func PermissionClaims(a *v1alpha1.Agent) []v1alpha1.PermissionClaim {
	var out []v1alpha1.PermissionClaim
	for _, c := range Claims(a) {
		out = append(out, v1alpha1.PermissionClaim{Group: c.Group, Resource: c.Resource, IdentityHash: c.IdentityHash,
			Verbs: []string{"*"}})
	}
	return out
}

// RelatedOfConsumers returns the related resources whose objects the agent copies from workspaces to its cluster. Like
// objects of the published kinds, they have the Finalizer (api-syncagent: internal/sync/syncer_related.go,
// blockSourceDeletion).
func RelatedOfConsumers(a *v1alpha1.Agent) []schema.GroupResource {
	var out []schema.GroupResource
	for _, p := range a.PublishedResources {
		s := decode(p.Spec)
		for _, r := range s.Related {
			if in := r.inKcp(); r.Origin == originKcp && !slices.Contains(out, in) {
				out = append(out, in)
			}
		}
	}
	return out
}
