// Package kcpapi is the table of kcp's APIs that kcpctl uses (kcp:
// staging/src/github.com/kcp-dev/sdk/apis).
package kcpapi

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Groups of kcp's APIs.
const (
	Group          = "apis.kcp.io"
	CoreGroup      = "core.kcp.io"
	TenancyGroup   = "tenancy.kcp.io"
	MigrationGroup = "migration.kcp.io"
)

// The annotations with the name and the path of a logical cluster. The first is on all objects, the second on the
// LogicalCluster (kcp: sdk/apis/core, logicalcluster.AnnotationKey).
const (
	AnnotationCluster = "kcp.io/cluster"
	AnnotationPath    = "kcp.io/path"
)

// AnnotationScheduled is on a Workspace, with the logical cluster that kcp has chosen for it before it is created (kcp:
// pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
const AnnotationScheduled = "internal.tenancy.kcp.io/cluster"

// LogicalClusterName is the name of the LogicalCluster of each workspace (kcp: sdk/apis/core/v1alpha1,
// LogicalClusterName).
const LogicalClusterName = "cluster"

// API is a kind of object, and the resource under which kcp serves it. The objects of all of them have no namespace.
type API struct {
	schema.GroupVersionKind
	Resource string
}

// The APIs, in the version that kcpctl reads and writes.
var (
	Workspace               = api(TenancyGroup, "v1alpha1", "Workspace", "workspaces")
	WorkspaceType           = api(TenancyGroup, "v1alpha1", "WorkspaceType", "workspacetypes")
	Shard                   = api(CoreGroup, "v1alpha1", "Shard", "shards")
	LogicalCluster          = api(CoreGroup, "v1alpha1", "LogicalCluster", "logicalclusters")
	APIExport               = api(Group, "v1alpha2", "APIExport", "apiexports")
	APIBinding              = api(Group, "v1alpha2", "APIBinding", "apibindings")
	APIResourceSchema       = api(Group, "v1alpha1", "APIResourceSchema", "apiresourceschemas")
	APIExportEndpointSlice  = api(Group, "v1alpha1", "APIExportEndpointSlice", "apiexportendpointslices")
	LogicalClusterMigration = api(MigrationGroup, "v1alpha1", "LogicalClusterMigration", "logicalclustermigrations")
)

// InWorkspaces are the APIs that every workspace serves.
var InWorkspaces = []API{Workspace, WorkspaceType, LogicalCluster, APIExport, APIBinding, APIResourceSchema,
	APIExportEndpointSlice}

func api(group, version, kind, resource string) API {
	return API{schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, resource}
}

// GVR is the resource with its group and version.
func (a API) GVR() schema.GroupVersionResource { return a.GroupVersion().WithResource(a.Resource) }

// GroupResource is the resource with its group.
func (a API) GroupResource() schema.GroupResource { return a.GVR().GroupResource() }

// New returns an object with a name.
func (a API) New(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(a.GroupVersionKind)
	u.SetName(name)
	return u
}
