// Package negotiate decides which APIs of physical clusters workspaces can use, and with which schemas. Objects in,
// objects out: the controller reads the arguments and writes the results.
//
// An API is published with the least common denominator of the schemas of all clusters that serve it. From then on its
// schema does not change, because kcp drops fields that a new schema lacks at the next write of an object. A cluster
// that would need a narrower schema is Incompatible for this API: no object of it is scheduled there. Its state has
// what the published schema would lose, and a value with which a user accepts exactly that. Schemas become narrower or
// wider only if a user requests it.
package negotiate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
)

// API is a version of an API that a cluster serves.
type API struct {
	Group        string                                           `json:"group"`
	Version      string                                           `json:"version"`
	Names        apiextensionsv1.CustomResourceDefinitionNames    `json:"names"`
	Scope        apiextensionsv1.ResourceScope                    `json:"scope"`
	Schema       *apiextensionsv1.JSONSchemaProps                 `json:"schema"`
	Subresources apiextensionsv1.CustomResourceSubresources       `json:"subresources,omitzero"`
	Columns      []apiextensionsv1.CustomResourceColumnDefinition `json:"columns,omitempty"`
}

// GroupResource returns the resource without its version.
func (a *API) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: a.Group, Resource: a.Names.Plural}
}

// Cluster has the APIs that a cluster serves.
type Cluster struct {
	Name string
	APIs []API
	// Problems are the reasons why the cluster does not serve an API, or why its schema cannot be read.
	Problems map[schema.GroupResource]string
}

// Input is the input of a negotiation.
type Input struct {
	// APIs are the APIs to publish. Others remain published, but are Removed: kcp hides the objects of an API that is
	// not published.
	APIs []schema.GroupResource
	// Clusters are the clusters whose APIs could be read, the oldest first: if two cannot have a common schema, the
	// older one decides. A cluster that could not be read is left out, and keeps the states that it has.
	Clusters []Cluster
	// Export is the APIExport with the published APIs, or nil before the first publication.
	Export *unstructured.Unstructured
	// Schemas are all APIResourceSchemas of the compute workspace. Of those that Export does not have, the name and the
	// labels are enough.
	Schemas []*unstructured.Unstructured
	// Bound are the names of the APIResourceSchemas that any APIBinding uses (status.boundResources), in all
	// workspaces. It is nil if they could not be listed.
	Bound map[string]bool
	// Accepted are the values of api.Acceptance, by cluster, that users have accepted. Others are ignored.
	Accepted map[string][]string
	// Widen are APIs whose schema becomes the common one of all clusters, with its defaults, if that is not narrower
	// than the published one.
	Widen []schema.GroupResource
	// Refused has why kcp refuses new APIResourceSchemas, by their names. What is published is kept.
	Refused map[string]string
	// Unread are the clusters of which it is not known what they serve, by API. An API is not widened before it is
	// known.
	Unread map[schema.GroupResource][]string
}

// Output is the result of a negotiation, which the controller writes.
type Output struct {
	// Schemas are new APIResourceSchemas. They are written first.
	Schemas []*unstructured.Unstructured
	// Export is the APIExport with the published APIs, for server-side apply. It is nil if nothing is published.
	Export *unstructured.Unstructured
	// Published are the APIs of Export.
	Published []schema.GroupVersionResource
	// ClusterExports are the APIExports of the clusters. There are none until kcp has given Input.Export an identity.
	ClusterExports []*unstructured.Unstructured
	// States are the states of all APIs by cluster, sorted by group and resource.
	States map[string][]api.APIStatus
	// Obsolete are the names of the APIResourceSchemas that can be deleted.
	Obsolete []string
	// NotWidened has why requests to widen an API are not carried out. The states of the API have it, too.
	NotWidened map[schema.GroupResource]string
}

// Negotiate computes which APIs are published. It fails if a published schema cannot be read.
func Negotiate(in Input) (*Output, error) {
	published, err := publishedAPIs(in.Export, in.Schemas)
	if err != nil {
		return nil, err
	}
	out := &Output{States: map[string][]api.APIStatus{}, NotWidened: map[schema.GroupResource]string{}}
	var resources []resource
	for _, gr := range sorted(in.APIs, slices.Collect(maps.Keys(published))) {
		was := published[gr]
		decided, err := next(gr, was, in)
		if err != nil {
			return nil, err
		}
		is := decided.is
		if decided.notWidened != "" {
			out.NotWidened[gr] = decided.notWidened
		}
		for _, c := range in.Clusters {
			s := decided.explain(state(gr, is, c))
			if !slices.Contains(in.APIs, gr) {
				s = removed(gr, is)
			}
			out.States[c.Name] = append(out.States[c.Name], s)
		}
		if is == nil {
			continue
		}
		if is.object != nil && find(in.Schemas, is.name) == nil {
			out.Schemas = append(out.Schemas, is.object)
		}
		resources = append(resources, resource{gr, is.name})
		out.Published = append(out.Published, gr.WithVersion(is.Version))
	}
	if len(resources) > 0 {
		out.Export = export(resources)
		out.ClusterExports = clusterExports(in, resources)
	}
	out.Obsolete = obsolete(in, resources)
	return out, nil
}

// sorted returns all resources once, sorted by group and name.
func sorted(lists ...[]schema.GroupResource) []schema.GroupResource {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return slices.Compact(all)
}

// decision is what to publish of an API. is is nil if it is nothing.
type decision struct {
	is *published
	// notWidened and notNarrowed are why the API is not widened or narrowed although a user requests it, and
	// unpublished is why it is not published although clusters serve it.
	notWidened, notNarrowed, unpublished string
}

// next returns the API to publish. It is the published one, unless a user has requested another schema.
func next(gr schema.GroupResource, was *published, in Input) (decision, error) {
	if was == nil {
		is, refused, err := in.newlyPublished(common(gr, "", in.Clusters))
		return decision{is: is, unpublished: refused}, err
	}
	out := decision{is: was}
	for _, c := range in.Clusters {
		if len(in.Accepted[c.Name]) == 0 {
			continue
		}
		narrowed, offer := narrow(was, c)
		if offer == nil || !slices.Contains(in.Accepted[c.Name], offer.Value) {
			continue
		}
		is, refused, err := in.newlyPublished(narrowed)
		if refused == "" || err != nil {
			return decision{is: is}, err
		}
		out.notNarrowed = refused
	}
	if !slices.Contains(in.Widen, gr) {
		return out, nil
	}
	widened, why := widen(gr, was, in)
	out.notWidened = why
	if widened == nil {
		return out, nil
	}
	is, refused, err := in.newlyPublished(widened)
	if refused == "" {
		return decision{is: is}, err
	}
	out.notWidened = refused
	return out, nil
}

// widen returns the wider API that a user requests. It is nil if the published one is kept, with the reason.
func widen(gr schema.GroupResource, was *published, in Input) (_ *API, why string) {
	if unread := in.Unread[gr]; len(unread) > 0 {
		return nil, "it is not known yet what these clusters serve: " + strings.Join(unread, ", ")
	}
	widened := common(gr, was.Version, in.Clusters)
	if widened == nil {
		return nil, ""
	}
	if narrower := lost(&was.API, widened); len(narrower) > 0 {
		return nil, "it would also become narrower: " + describe(narrower)
	}
	return widened, ""
}

// newlyPublished returns an API with its APIResourceSchema, or nil if there is none. Or it returns why kcp refuses it.
func (in *Input) newlyPublished(a *API) (_ *published, refused string, _ error) {
	if a == nil {
		return nil, "", nil
	}
	object, err := Schema(a)
	if err != nil {
		return nil, "", err
	}
	if why := in.Refused[object.GetName()]; why != "" {
		return nil, "kcp refuses the schema that its clusters have in common: " + why, nil
	}
	return &published{API: *a, name: object.GetName(), object: object}, "", nil
}

// common returns what the clusters that serve an API have in common. Clusters that cannot have a common schema with
// earlier ones do not count.
func common(gr schema.GroupResource, v string, clusters []Cluster) (result *API) {
	if v == "" {
		v = commonVersion(gr, clusters)
	}
	for _, c := range clusters {
		a := c.api(gr, v)
		if a == nil {
			continue
		}
		if result == nil {
			// Intersecting a schema with itself normalizes it, as it does if another cluster has the same one.
			result = a
		}
		if merged, err := merge(result, a); err == nil {
			result = merged
		}
	}
	return result
}

func merge(a, b *API) (*API, error) {
	if err := sameNames(a, b); err != nil {
		return nil, err
	}
	s, found := lcd.Intersect(a.Schema, b.Schema)
	if len(found) > 0 {
		return nil, errors.New(describe(found))
	}
	merged := *a
	merged.Schema = s
	merged.Subresources = *a.Subresources.DeepCopy()
	if b.Subresources.Status == nil {
		merged.Subresources.Status = nil
	}
	if b.Subresources.Scale == nil {
		merged.Subresources.Scale = nil
	}
	return &merged, nil
}

func sameNames(a, b *API) error {
	switch {
	case a.Names.Kind != b.Names.Kind:
		return fmt.Errorf("the kind is %s, and %s in the cluster", a.Names.Kind, b.Names.Kind)
	case a.Scope != b.Scope:
		return fmt.Errorf("the scope is %s, and %s in the cluster", a.Scope, b.Scope)
	}
	return nil
}

func (c *Cluster) api(gr schema.GroupResource, v string) *API {
	for i := range c.APIs {
		if a := &c.APIs[i]; a.GroupResource() == gr && a.Version == v {
			return a
		}
	}
	return nil
}

// Knows reports whether it is known what the cluster serves of an API.
func (c *Cluster) Knows(gr schema.GroupResource) bool {
	return c.Problems[gr] != "" || len(c.versions(gr)) > 0
}

// versions returns the versions of an API that a cluster serves, the highest first.
func (c *Cluster) versions(gr schema.GroupResource) []string {
	var all []string
	for i := range c.APIs {
		if c.APIs[i].GroupResource() == gr {
			all = append(all, c.APIs[i].Version)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return all
}

// commonVersion returns the highest version that all clusters with the API serve, or else the one of the oldest
// cluster.
func commonVersion(gr schema.GroupResource, clusters []Cluster) string {
	var candidates, first []string
	for _, c := range clusters {
		v := c.versions(gr)
		switch {
		case len(v) == 0:
		case first == nil:
			first = v
			candidates = v
		default:
			candidates = slices.DeleteFunc(slices.Clone(candidates),
				func(c string) bool { return !slices.Contains(v, c) })
		}
	}
	for _, v := range slices.Concat(candidates, first) {
		return v
	}
	return ""
}

// unpublished is the message about an API that the cluster serves and that is not published.
const unpublished = "the API is not published"

// state returns whether objects of a published API can run in a cluster. The API is nil if it is not published.
func state(gr schema.GroupResource, is *published, c Cluster) api.APIStatus {
	out := api.APIStatus{Group: gr.Group, Resource: gr.Resource, State: api.APIIgnored}
	versions := c.versions(gr)
	if is != nil {
		out.Version = is.Version
	}
	switch {
	case c.Problems[gr] != "":
		out.Message = c.Problems[gr]
		return out
	case len(versions) == 0:
		out.Message = fmt.Sprintf("the cluster does not serve %s", gr)
		return out
	case is == nil:
		out.Message = unpublished
		return out
	}
	own := c.api(gr, is.Version)
	if own == nil {
		out.State = api.APIIncompatible
		out.Message = fmt.Sprintf("version %s is published, the cluster serves %s", is.Version,
			strings.Join(versions, ", "))
		return out
	}
	if out.State, out.Message = compare(&is.API, own); out.State == api.APIIncompatible {
		_, out.Accept = narrow(is, c)
	}
	return out
}

// explain adds to the state of an API why something that was to be published is not.
func (d decision) explain(s api.APIStatus) api.APIStatus {
	switch {
	case s.State == api.APIIgnored && s.Message == unpublished && d.unpublished != "":
		s.Message += ": " + d.unpublished
	case s.State == api.APIIgnored:
	case d.notNarrowed != "":
		s.Message = strings.TrimSuffix("not narrowed: "+d.notNarrowed+"; "+s.Message, "; ")
	case d.notWidened != "":
		s.Message = strings.TrimSuffix("not widened: "+d.notWidened+"; "+s.Message, "; ")
	}
	return s
}

// removed returns the state of an API that remains published, but is no longer one of the APIs to publish.
func removed(gr schema.GroupResource, is *published) api.APIStatus {
	return api.APIStatus{
		Group: gr.Group, Resource: gr.Resource, Version: is.Version, State: api.APIRemoved,
		Message: "the setup no longer has the API. It stays published, but its objects are neither scheduled nor " +
			"synced: to delete them, add it again",
	}
}

// compare returns whether a cluster accepts all objects of the published API.
func compare(is, own *API) (api.APIState, string) {
	if err := sameNames(is, own); err != nil {
		return api.APIIncompatible, err.Error()
	}
	if is.Subresources.Status != nil && own.Subresources.Status == nil {
		return api.APIIncompatible, "the API has no subresource status in the cluster"
	}
	if narrower := lcd.Narrows(is.Schema, own.Schema); len(narrower) > 0 {
		return api.APIIncompatible, describe(narrower)
	}
	if wider := lcd.Narrows(own.Schema, is.Schema); len(wider) > 0 {
		return api.APICompatible, "not published: " + describe(wider)
	}
	return api.APIPublished, ""
}

const shown = 3

func describe(found []lcd.Incompatibility) string {
	var all []string
	for _, i := range found[:min(len(found), shown)] {
		all = append(all, i.String())
	}
	if more := len(found) - shown; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// Condition returns the condition APIsCompatible of a cluster. The caller sets the times.
func Condition(apis []api.APIStatus) metav1.Condition {
	var refused []string
	for _, a := range apis {
		if a.State == api.APIIncompatible {
			refused = append(refused, fmt.Sprintf("%s: %s", a.GroupResource(), a.Message))
		}
	}
	if len(refused) > 0 {
		return api.Not(api.ConditionAPIsCompatible, api.ReasonSchemaIncompatible, strings.Join(refused, "\n"))
	}
	return metav1.Condition{Type: api.ConditionAPIsCompatible, Status: metav1.ConditionTrue,
		Reason: api.ReasonCompatible}
}

// mostLost is the number of fields that a user can judge. A cluster that lacks more needs another version of the API.
const mostLost = 100

// narrow returns the narrower schema with which a cluster can serve a published API, and the value and the fields for
// its user. Both are nil if the cluster can serve the API already, or if no schema permits that.
func narrow(was *published, c Cluster) (*API, *api.Acceptance) {
	own := c.api(was.GroupResource(), was.Version)
	if own == nil {
		return nil, nil
	}
	is, err := merge(&was.API, own)
	if err != nil {
		return nil, nil // the message of the state has the reason
	}
	fields := lost(&was.API, is)
	content, err := json.Marshal(is)
	if err != nil || len(fields) == 0 || len(fields) > mostLost {
		return nil, nil
	}
	// The hash is of both schemas: what is lost is the difference.
	out := &api.Acceptance{Value: was.GroupResource().String() + ":" + api.Hash(8, was.name, string(content))}
	for _, f := range fields {
		out.Lost = append(out.Lost, f.String())
	}
	return is, out
}

// lost returns what objects of an API lose with its next schema, or why they would be refused.
func lost(was, is *API) []lcd.Incompatibility {
	out := lcd.Narrows(was.Schema, is.Schema)
	if was.Subresources.Status != nil && is.Subresources.Status == nil {
		out = append(out, lcd.Incompatibility{Path: "status", Message: "the API has no subresource status"})
	}
	if was.Subresources.Scale != nil && is.Subresources.Scale == nil {
		out = append(out, lcd.Incompatibility{Path: "scale", Message: "the API has no subresource scale"})
	}
	return out
}
