package negotiate

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
)

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
	return metav1.Condition{Type: api.ConditionAPIsCompatible, Status: metav1.ConditionTrue, Reason: api.ReasonCompatible}
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
