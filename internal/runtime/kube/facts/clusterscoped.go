package facts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// everything is what administrators of a cluster may do. It takes one request to find out.
var everything = permission{verb: "*", group: "*", resource: "*"}

// hintClusterScoped is the next step of a user who lacks permissions for objects without a namespace.
const hintClusterScoped = "ask an administrator of the cluster for these permissions (the role cluster-admin has them; the role admin of a " +
	"namespace does not), or choose another context"

// MayApplyClusterScoped returns an error with all permissions that the user lacks to apply objects that have no
// namespace. The first up on a cluster makes no dry run, because the namespace does not exist yet: without this, users
// who may not create ClusterRoles learn it when half of an agent is there.
func (c *Cluster) MayApplyClusterScoped(ctx context.Context, objects []render.Object) error {
	if err := c.client.Connect(ctx); err != nil {
		return err
	}
	if denied, err := isDenied(ctx, c.client, everything); !denied || err != nil {
		return err
	}
	objects, err := withoutShared(ctx, c.client, objects)
	if err != nil || len(objects) == 0 {
		return err
	}
	var s permissionSet
	s.addForKinds(objects)
	missing, err := lacking(ctx, c.client, s.all, nil)
	if err != nil {
		return err
	}
	grants, err := mayGrant(ctx, c.client, objects)
	if err != nil {
		return err
	}
	if missing = append(missing, grants...); len(missing) == 0 {
		return nil
	}
	return notAllowed(c.client, missing, hintClusterScoped)
}

// withoutShared returns the objects except the shared ones that exist: they may belong to others, and are only read.
func withoutShared(ctx context.Context, cl *cluster.Client, objects []render.Object) ([]render.Object, error) {
	var out []render.Object
	for _, o := range objects {
		k, err := kind.Of(o.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		if !k.Shared {
			out = append(out, o)
			continue
		}
		live, err := cl.Get(ctx, k, o.GetName())
		switch {
		case cluster.IsDenied(err) || err == nil && live == nil:
			out = append(out, o)
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}

// mayGrant returns what the user lacks to create and to bind ClusterRoles. Kubernetes demands that the user may
// escalate and bind them, or has all permissions that they grant (kubernetes:
// pkg/registry/rbac/clusterrole/policybased/storage.go, and the same file of clusterrolebinding).
func mayGrant(ctx context.Context, cl *cluster.Client, objects []render.Object) ([]string, error) {
	var roles permissionSet
	roles.add(kind.ClusterRole.GVR().GroupResource(), "escalate", "bind")
	var granted []permission
	for _, o := range objects {
		if !isOf(kind.ClusterRole)(o) {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("read ClusterRole %s: %w", o.GetName(), err)
		}
		granted = append(granted, permissionsOf(role.Rules)...)
	}
	if len(granted) == 0 {
		return nil, nil
	}
	refused, err := lacking(ctx, cl, roles.all, nil)
	if err != nil || len(refused) == 0 {
		return nil, err
	}
	lacks, err := lacking(ctx, cl, granted, nil)
	if err != nil || len(lacks) == 0 {
		return nil, err
	}
	const shown = 5
	return []string{strings.Join(refused, " and ") + ", or what the ClusterRoles grant: " + gather.Few(lacks,
		shown, ", ")}, nil
}

// permissionsOf returns the permissions of the rules of a ClusterRole, each once. Those for URLs are left out.
func permissionsOf(rules []rbacv1.PolicyRule) []permission {
	var out []permission
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				resource, sub, _ := strings.Cut(resource, "/")
				for _, verb := range r.Verbs {
					for _, name := range names {
						p := permission{verb: verb, group: group, resource: resource, subresource: sub, name: name}
						if !slices.Contains(out, p) {
							out = append(out, p)
						}
					}
				}
			}
		}
	}
	return out
}
