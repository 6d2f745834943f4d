package v1alpha1

import rbacv1 "k8s.io/api/rbac/v1"

// Workspace is a workspace of kcp, with its access, its APIs and the workspaces in it. kcpctl up creates it when all
// shards serve.
type Workspace struct {
	// Name is the last part of the path: a DNS label. The workspace team-a of this list has the path root:team-a.
	Name string `json:"name"`
	// Type is the WorkspaceType, with or without the path of its workspace: universal, root:organization. kcp does not
	// change the type of an existing workspace. Default: the one that kcp chooses for the parent, universal in root.
	Type string `json:"type,omitempty"`
	// Selector are labels of the shards that the workspace may be placed on, such as region: eu, or name: alpha. kcp
	// does not move an existing workspace. Default: any shard.
	Selector map[string]string `json:"selector,omitempty"`
	// Existing uses a workspace that belongs to someone else: it is created if it does not exist, and otherwise neither
	// changed nor removed. Its access, bindings and workspaces are applied. Default: false.
	Existing bool `json:"existing,omitempty"`
	// Access are the users and groups that may enter the workspace, and what they may do in it.
	Access []WorkspaceAccess `json:"access,omitempty"`
	// Bindings are the APIs of the workspace.
	Bindings []WorkspaceBinding `json:"bindings,omitempty"`
	// Workspaces are the workspaces in this one.
	Workspaces []Workspace `json:"workspaces,omitempty"`
}

// WorkspaceAccess binds a role to users and groups in a workspace. They may also enter it.
type WorkspaceAccess struct {
	// Name is the name of the access in this workspace. Default: clusterRole.
	Name string `json:"name,omitempty"`
	// ClusterRole is a ClusterRole that exists in the workspace, such as cluster-admin or view. Leave it out and set
	// rules for its own role. Without both, users and groups may only enter.
	ClusterRole string `json:"clusterRole,omitempty"`
	// Rules are the rules of a ClusterRole that is created for this access.
	Rules []rbacv1.PolicyRule `json:"rules,omitempty"`
	// Users are names of users.
	Users []string `json:"users,omitempty"`
	// Groups are names of groups.
	Groups []string `json:"groups,omitempty"`
}

// WorkspaceBinding binds an APIExport in a workspace.
type WorkspaceBinding struct {
	// Export is the APIExport, with the path of its workspace: root:widgets:widgets.example.com.
	Export string `json:"export"`
	// Name is the name of the APIBinding. Default: the name of the APIExport.
	Name string `json:"name,omitempty"`
	// AcceptAllClaims accepts the permission claims that the APIExport has when kcpctl up creates the APIBinding, and
	// for the APIExport of an agent of the setup those that follow from the agent. Claims that the owner adds later are
	// not accepted: list them in claims. Default: false.
	AcceptAllClaims bool `json:"acceptAllClaims,omitempty"`
	// Claims are the permission claims to accept. Others are not accepted.
	Claims []PermissionClaim `json:"claims,omitempty"`
}

// PermissionClaim lets the owner of an APIExport use other objects of the workspaces that bind it.
type PermissionClaim struct {
	// Group is the API group of the objects; empty is the core group.
	Group string `json:"group,omitempty"`
	// Resource is the name of the resource, such as configmaps.
	Resource string `json:"resource"`
	// IdentityHash is the identity of the APIExport of the resource. It is empty for resources that are part of kcp.
	IdentityHash string `json:"identityHash,omitempty"`
	// Verbs are the verbs to allow, of those that the APIExport claims. Default: all, written as "*".
	Verbs []string `json:"verbs,omitempty"`
	// Selector limits the claim to objects with these labels. kcp refuses to change it later. Default: all objects.
	Selector map[string]string `json:"selector,omitempty"`
}
