package heartbeat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// annotationReport is the annotation of a Lease with the Report, as JSON.
const annotationReport = api.Group + "/report"

// Report is the state that a syncer sends with a heartbeat.
type Report struct {
	Mode v1alpha1.SyncMode `json:"mode"`
	// Version is the version of the syncer, and ClusterVersion the version of the API server of the physical cluster.
	Version        string `json:"version,omitempty"`
	ClusterVersion string `json:"clusterVersion,omitempty"`
	// ClusterUID identifies a cluster that the controller cannot read.
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// Cluster is the UID of the Cluster that the syncer works for: another one can have its name by now. It is empty in
	// reports of earlier versions.
	Cluster types.UID `json:"cluster,omitempty"`
	// Reason and Message are why the syncer does not reach the physical cluster. Empty: it does.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Orphans is the message about objects without an object in kcp. Empty: there are none.
	Orphans string `json:"orphans,omitempty"`
	// OtherSetup is why the syncer does not work: the cluster has the objects of these workspaces under another ID of
	// the setup. Empty: it works.
	OtherSetup string `json:"otherSetup,omitempty"`
	// Capacity are the resources of the cluster. Nil: they are not known.
	Capacity *api.Capacity `json:"capacity,omitempty"`
	// SchemasProblem is why some ConfigMaps with the APIs of a cluster that the controller cannot read are missing or
	// old. Empty: none are.
	SchemasProblem string `json:"schemasProblem,omitempty"`
}

// The limits of a report. A syncer runs in a cluster that others administrate: what it reports becomes part of the
// status of its Cluster, and decides what is scheduled there.
const (
	// maxText is the length of a text, and maxUID the length of a UID.
	maxText, maxUID = 1000, 64
	// maxResources is the number of resources of a capacity.
	maxResources = 64
)

// absurd is more than a cluster can have. Other resources, such as memory in bytes, are limited by largest.
func absurd() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:  resource.MustParse("10M"),
		corev1.ResourcePods: resource.MustParse("10M"), // of 5000 nodes, which is what Kubernetes supports
	}
}

const largest = "1Ei"

// errNoReport means that a Lease was not written by a syncer.
var errNoReport = errors.New("the Lease has no report of a syncer")

func reportText(lease *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(lease.Object, "metadata", "annotations", annotationReport)
	return text
}

// ReportOf returns the report of a Lease, as far as it is credible.
func ReportOf(lease *unstructured.Unstructured) (Report, error) {
	var out Report
	text, ok := lease.GetAnnotations()[annotationReport]
	if !ok {
		return out, errNoReport
	}
	var fields map[string]any
	err := json.Unmarshal([]byte(text), &fields)
	if capacity, ok := fields["capacity"]; ok {
		fields["capacity"] = api.Countable(capacity)
	}
	if err = cmp.Or(err, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &out)); err != nil {
		return Report{}, fmt.Errorf("report of Lease %s: %s", lease.GetName(), Cut(err.Error()))
	}
	out.confine()
	return out, nil
}

// IsFor reports whether the syncer works for the Cluster with a UID, as far as the report says it.
func (r Report) IsFor(cluster types.UID) bool { return r.Cluster == "" || r.Cluster == cluster }

func (r Report) withoutRequests() Report {
	if r.Capacity != nil {
		capacity := *r.Capacity
		capacity.Requested = nil
		r.Capacity = &capacity
	}
	return r
}

func (r *Report) confine() {
	for _, text := range []*string{
		&r.Version, &r.ClusterVersion, &r.Message, &r.Orphans, &r.OtherSetup, &r.SchemasProblem,
	} {
		*text = Cut(*text)
	}
	if !slices.Contains([]string{"", api.ReasonUnauthorized, api.ReasonForbidden, api.ReasonUnreachable}, r.Reason) {
		r.Reason = api.ReasonUnreachable
	}
	if !slices.Contains(v1alpha1.SyncModes, r.Mode) {
		r.Mode = ""
	}
	for _, uid := range []*types.UID{&r.ClusterUID, &r.Cluster} {
		if len(*uid) > maxUID {
			*uid = ""
		}
	}
	if r.Capacity != nil {
		r.Capacity = &api.Capacity{Allocatable: credible(r.Capacity.Allocatable),
			Requested: credible(r.Capacity.Requested)}
	}
}

// credible returns the resources that a cluster can have. If there are too many, it returns the first ones by name.
func credible(all corev1.ResourceList) corev1.ResourceList {
	if all == nil {
		return nil
	}
	out, limits := corev1.ResourceList{}, absurd()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		limit, ok := limits[name]
		if !ok {
			limit = resource.MustParse(largest)
		}
		if q := all[name]; q.Sign() >= 0 && q.Cmp(limit) <= 0 && len(name) <= maxText && len(out) < maxResources {
			out[name] = q
		}
	}
	return out
}

// capped returns a capacity whose allocatable resources are not more than the Cluster permits.
func capped(c *api.Capacity, most corev1.ResourceList) *api.Capacity {
	if c == nil || len(most) == 0 {
		return c
	}
	out := &api.Capacity{Allocatable: maps.Clone(c.Allocatable), Requested: c.Requested}
	for name, limit := range most {
		if q, ok := out.Allocatable[name]; ok && q.Cmp(limit) > 0 {
			out.Allocatable[name] = limit
		}
	}
	return out
}

// Cut shortens a text that someone else has written.
func Cut(text string) string { return CutTo(text, maxText) }

// CutTo shortens a text to a number of bytes.
func CutTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = " ..."
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
