package negotiate

import (
	"encoding/json"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
)

// mostLost is the number of fields that a user can judge. A cluster that lacks more needs another version of the API.
const mostLost = 100

// narrow returns the narrower schema with which a cluster can serve a published API, and the value and the fields for its
// user. Both are nil if the cluster can serve the API already, or if no schema permits that.
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
