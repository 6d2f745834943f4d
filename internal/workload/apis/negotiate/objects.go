package negotiate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// annotationApproved is needed for groups of the Kubernetes community (apiextensions: pkg/apihelpers/helpers.go,
// GetAPIApprovalState).
const annotationApproved = "api-approved.kubernetes.io"

// claimVerbs are the verbs of syncers. These delete nothing in workspaces: kcp does when they have removed their
// finalizer.
func claimVerbs() []any { return []any{"get", "list", "watch", "update", "patch"} }

// controllerVerbs are the verbs of the controller for dependencies: it reads the objects of users, and writes their
// leaves.
func controllerVerbs() []any { return append(claimVerbs(), "create", "delete") }

type resource struct {
	gr     schema.GroupResource
	schema string
}

// published is an API and the name of its APIResourceSchema. object is nil if it was read.
type published struct {
	API
	name   string
	object *unstructured.Unstructured
}

type resourceSpec struct {
	Group    string                                        `json:"group"`
	Names    apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
	Scope    apiextensionsv1.ResourceScope                 `json:"scope"`
	Versions []resourceVersion                             `json:"versions"`
}

type resourceVersion struct {
	Name         string                                           `json:"name"`
	Served       bool                                             `json:"served"`
	Storage      bool                                             `json:"storage"`
	Schema       *apiextensionsv1.JSONSchemaProps                 `json:"schema"`
	Subresources apiextensionsv1.CustomResourceSubresources       `json:"subresources,omitzero"`
	Columns      []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty"`
}

// Schema returns the APIResourceSchema of an API. Its name has a hash of its spec, because the spec is immutable.
func Schema(a *API) (*unstructured.Unstructured, error) {
	spec := resourceSpec{Group: a.Group, Names: a.Names, Scope: a.Scope, Versions: []resourceVersion{{
		Name: a.Version, Served: true, Storage: true, Schema: a.Schema, Subresources: a.Subresources,
		Columns: a.Columns,
	}}}
	if spec.Names.ListKind == "" {
		spec.Names.ListKind = spec.Names.Kind + "List"
	}
	if spec.Names.Singular == "" {
		spec.Names.Singular = strings.ToLower(spec.Names.Kind)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the schema of %s: %w", a.GroupResource(), err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("encode the schema of %s: %w", a.GroupResource(), err)
	}
	group := a.Group
	if group == "" {
		group = "core" // kcp: pkg/admission/apiresourceschema/validation.go
	}
	u := kcpapi.APIResourceSchema.New("v" + api.Hash(8, string(data)) + "." + a.Names.Plural + "." + group)
	u.SetLabels(map[string]string{api.LabelManagedBy: api.ManagerController})
	if isCommunityGroup(a.Group) {
		u.SetAnnotations(map[string]string{annotationApproved: "unapproved, the schema was read from clusters"})
	}
	u.Object["spec"] = object
	return u, nil
}

// isCommunityGroup reports whether kcp requires an approval of the schemas of a group (apiextensions:
// pkg/apihelpers/helpers.go, IsProtectedCommunityGroup).
func isCommunityGroup(group string) bool {
	return group == "k8s.io" || group == "kubernetes.io" || strings.HasSuffix(group, ".k8s.io") ||
		strings.HasSuffix(group, ".kubernetes.io")
}

func export(resources []resource) *unstructured.Unstructured {
	var list []any
	for _, r := range resources {
		list = append(list, map[string]any{
			"name": r.gr.Resource, "group": r.gr.Group, "schema": r.schema,
			"storage": map[string]any{"crd": map[string]any{}},
		})
	}
	u := kcpapi.APIExport.New(api.ExportWorkloads)
	u.Object["spec"] = map[string]any{"resources": list, "permissionClaims": controllerClaims()}
	return u
}

// controllerClaims returns what the controller needs besides the published APIs: what workloads need, the bindings of
// the clusters, the annotations of namespaces, and the paths of workspaces. kcp serves LogicalClusters itself, so that
// the claim needs no identity (kcp: pkg/virtual/apiexport/schemas/builtin).
func controllerClaims() []any {
	var all []any
	for _, r := range api.Dependencies() {
		all = append(all, map[string]any{"group": r.Group, "resource": r.Resource, "verbs": controllerVerbs()})
	}
	b := kcpapi.APIBinding
	all = append(all, map[string]any{"group": b.Group, "resource": b.Resource, "verbs": controllerVerbs()})
	for _, r := range []schema.GroupVersionResource{api.Namespaces(), kcpapi.LogicalCluster.GVR()} {
		all = append(all, map[string]any{"group": r.Group, "resource": r.Resource,
			"verbs": []any{"get", "list", "watch"}})
	}
	return all
}

// clusterExports returns the APIExports of the clusters. They have permission claims only. Their default selector
// confines the syncer of a cluster to the objects with its label, also in workspaces that are bound by their type.
func clusterExports(in Input, resources []resource) []*unstructured.Unstructured {
	identity := Identity(in.Export)
	if identity == "" {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, c := range in.Clusters {
		u := kcpapi.APIExport.New(api.ExportCluster(c.Name))
		u.Object["spec"] = map[string]any{"permissionClaims": claims(c.Name, identity, resources)}
		all = append(all, u)
	}
	return all
}

func claims(cluster, identity string, resources []resource) []any {
	var all []any
	claim := func(gr schema.GroupResource, identity string) {
		c := map[string]any{
			"group": gr.Group, "resource": gr.Resource, "verbs": claimVerbs(),
			"defaultSelector": map[string]any{"matchLabels": map[string]any{api.LabelCluster: cluster}},
		}
		if identity != "" {
			c["identityHash"] = identity
		}
		all = append(all, c)
	}
	for _, r := range resources {
		claim(r.gr, identity)
	}
	for _, r := range api.Dependencies() {
		claim(r.GroupResource(), "") // kcp serves it, so it has no identity
	}
	return all
}

// Identity returns the identity hash of an APIExport, or nothing if kcp has not set it yet.
func Identity(export *unstructured.Unstructured) string {
	if export == nil {
		return ""
	}
	identity, _, _ := unstructured.NestedString(export.Object, "status", "identityHash")
	return identity
}

// resourcesOf returns the APIs of an APIExport, or nothing if it is nil.
func resourcesOf(export *unstructured.Unstructured) (all []resource) {
	if export == nil {
		return nil
	}
	list, _, _ := unstructured.NestedSlice(export.Object, "spec", "resources")
	for _, item := range list {
		fields, _ := item.(map[string]any)
		group, _, _ := unstructured.NestedString(fields, "group")
		name, _, _ := unstructured.NestedString(fields, "name")
		schemaName, _, _ := unstructured.NestedString(fields, "schema")
		all = append(all, resource{schema.GroupResource{Group: group, Resource: name}, schemaName})
	}
	return all
}

// Exported returns the resources of an APIExport.
func Exported(export *unstructured.Unstructured) (all []schema.GroupResource) {
	for _, r := range resourcesOf(export) {
		all = append(all, r.gr)
	}
	return all
}

// SchemasOf returns the names of the APIResourceSchemas of an APIExport, or nothing if it is nil.
func SchemasOf(export *unstructured.Unstructured) (all []string) {
	for _, r := range resourcesOf(export) {
		all = append(all, r.schema)
	}
	return all
}

// Published returns the APIs of an APIExport, or nothing if it is nil.
func Published(export *unstructured.Unstructured,
	schemas []*unstructured.Unstructured) (all []schema.GroupVersionResource, _ error) {
	published, err := publishedAPIs(export, schemas)
	if err != nil {
		return nil, err
	}
	for _, gr := range sorted(slices.Collect(maps.Keys(published))) {
		all = append(all, gr.WithVersion(published[gr].Version))
	}
	return all, nil
}

func find(schemas []*unstructured.Unstructured, name string) *unstructured.Unstructured {
	if i := slices.IndexFunc(schemas, func(s *unstructured.Unstructured) bool { return s.GetName() == name }); i >= 0 {
		return schemas[i]
	}
	return nil
}

func publishedAPIs(export *unstructured.Unstructured,
	schemas []*unstructured.Unstructured) (map[schema.GroupResource]*published, error) {
	all := map[schema.GroupResource]*published{}
	var problems []error
	for _, name := range SchemasOf(export) {
		s := find(schemas, name)
		if s == nil {
			problems = append(problems,
				fmt.Errorf("APIExport %s names the APIResourceSchema %s, which does not exist", export.GetName(), name))
			continue
		}
		p, err := readSchema(s)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		all[p.GroupResource()] = p
	}
	return all, errors.Join(problems...)
}

func readSchema(u *unstructured.Unstructured) (*published, error) {
	data, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("read APIResourceSchema %s: %w", u.GetName(), err)
	}
	spec := resourceSpec{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read APIResourceSchema %s: %w", u.GetName(), err)
	}
	for _, v := range spec.Versions {
		if v.Storage && v.Schema != nil {
			return &published{name: u.GetName(), API: API{
				Group: spec.Group, Version: v.Name, Names: spec.Names, Scope: spec.Scope, Schema: v.Schema,
				Subresources: v.Subresources, Columns: v.Columns,
			}}, nil
		}
	}
	return nil, fmt.Errorf("read APIResourceSchema %s: no version is stored", u.GetName())
}

// obsolete returns the schemas of this package that no APIExport and no APIBinding uses.
func obsolete(in Input, resources []resource) []string {
	if in.Bound == nil {
		return nil
	}
	var names []string
	for _, s := range in.Schemas {
		used := in.Bound[s.GetName()] ||
			slices.ContainsFunc(resources, func(r resource) bool { return r.schema == s.GetName() })
		if IsOwn(s) && !used {
			names = append(names, s.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// IsOwn reports whether the controller has created an APIResourceSchema.
func IsOwn(s *unstructured.Unstructured) bool {
	return s.GetLabels()[api.LabelManagedBy] == api.ManagerController
}
