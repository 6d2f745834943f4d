package topology

import (
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

const (
	// RootWorkspace is the path of the workspace above all others.
	RootWorkspace = "root"
	// AccessRole is the ClusterRole of kcp with which users enter a workspace (kcp:
	// pkg/authorization/bootstrap/policy.go).
	AccessRole = "system:kcp:workspace:access"
	// shardNameLabel is the label that every shard has (kcp: pkg/server/server.go).
	shardNameLabel = "name"
)

// WorkspaceSpec is a workspace of kcp.
type WorkspaceSpec struct {
	v1alpha1.Workspace
	// Path is the full path, Parent the path of the workspace above it.
	Path, Parent string
}

// ChildPath returns the path of a workspace in another one.
func ChildPath(parent, name string) string { return parent + ":" + name }

// workspaces adds the workspaces in another one, and the workspaces in them. above is the workspace that they are in,
// if it is one of the setup.
func (b *builder) workspaces(parent string, above []ID, all []v1alpha1.Workspace) {
	for _, w := range all {
		c := &Component{
			Kind: Workspace, Name: ChildPath(parent, w.Name), Setup: b.t.Name, Cluster: b.t.Home,
			Needs: append([]ID{IDOf(Base, b.t.Home.Name), ID(RootShard), b.t.OwnFrontProxy().ID()}, above...),
		}
		c.Workspace = &WorkspaceSpec{Workspace: w, Path: c.Name, Parent: parent}
		b.add(c)
		b.workspaces(c.Name, []ID{c.ID()}, w.Workspaces)
	}
}

// AccessBinding returns the name of the ClusterRoleBinding with which users and groups enter a workspace. The setup's
// name in it, and in RoleName, distinguishes objects of the setup from others.
func (c *Component) AccessBinding() string { return c.Setup + ":access" }

// RoleName returns the name of the ClusterRole and the ClusterRoleBinding of an access.
func (c *Component) RoleName(access string) string { return c.Setup + ":role:" + access }

// WithAccess returns roles of a user in a workspace, and the role that lets the user enter it: without that role, kcp
// refuses all requests there. No roles remain none.
func WithAccess(roles []string) []string {
	if len(roles) == 0 || slices.Contains(roles, AccessRole) {
		return roles
	}
	return append([]string{AccessRole}, roles...)
}

// KubeconfigBinding returns the name of the ClusterRoleBinding that gives a role to the user of a kubeconfig.
func (c *Component) KubeconfigBinding(role string) string {
	return c.Setup + ":" + string(Kubeconfig) + ":" + c.Name + ":" + role
}

// CutExport divides an APIExport as the setup file names it into the path of its workspace and its name.
func CutExport(export string) (path, name string) {
	i := strings.LastIndex(export, ":")
	if i < 0 {
		return "", export
	}
	return export[:i], export[i+1:]
}

// SchedulingLabels returns all labels of a shard that the selector of a workspace can match.
func (c *Component) SchedulingLabels() map[string]string {
	return SchedulingLabels(c.ShardName(), c.ShardLabels)
}

// SchedulingLabels returns the labels of a shard with a name, besides its own.
func SchedulingLabels(name string, own map[string]string) map[string]string {
	out := map[string]string{shardNameLabel: name}
	maps.Copy(out, own)
	return out
}
