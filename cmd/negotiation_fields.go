package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/workload/apis/lcd"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// The values of schemaChange.Request.
const (
	requestNarrow = "Narrow"
	requestWiden  = "Widen"
)

// shownWorkspaces is how many workspaces a line of the table has.
const shownWorkspaces = 3

// schemaChange is a field of an API in which a schema changes.
type schemaChange struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	Version  string `json:"version"`
	// Request is what changes the field: Narrow or Widen. It is empty if nothing can.
	Request string `json:"request,omitempty"`
	// Cluster is the cluster that needs the change. It is empty for Widen.
	Cluster string `json:"cluster,omitempty"`
	// Path is the field. It is empty for the object itself.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Refused means that the schemas have too little in common: Message is the reason.
	Refused bool `json:"refused,omitempty"`
	// Objects is how many objects have the field. It is nil if they were not counted.
	Objects    *int           `json:"objects,omitempty"`
	Workspaces []workspaceUse `json:"workspaces,omitempty"`
}

// workspaceUse is a workspace with objects that have a field.
type workspaceUse struct {
	// Workspace is its path.
	Workspace string `json:"workspace"`
	Objects   int    `json:"objects"`
}

// items are the changes of a request, and why others are refused.
func (r *schemaRequest) items() (out []schemaChange) {
	for _, c := range r.changes {
		for _, d := range slices.Concat(c.Lost, c.Gained) {
			out = append(out, r.item(c, d))
		}
	}
	for _, c := range r.refused {
		item := r.item(c, lcd.Incompatibility{Message: c.Refused})
		item.Request = ""
		item.Refused = true
		out = append(out, item)
	}
	return out
}

func (r *schemaRequest) item(c negotiate.Change, d lcd.Incompatibility) schemaChange {
	out := schemaChange{Group: c.API.Group, Resource: c.API.Resource, Version: c.Version, Request: requestWiden,
		Path: d.Path, Message: d.Message}
	if r.narrow {
		out.Request = requestNarrow
		out.Cluster = r.cluster
	}
	return out
}

// fields returns the fields that change. For a request that makes schemas narrower, it counts the objects that have
// them.
func (n *negotiation) fields(ctx context.Context, r *schemaRequest) ([]schemaChange, error) {
	if !r.narrow {
		return (&schemaRequest{changes: r.changes}).items(), nil
	}
	var out []schemaChange
	var uses []map[string]int // by field and logical cluster
	all := map[string]bool{}
	for _, c := range r.changes {
		counts := make([]map[string]int, len(c.Lost))
		for i, d := range c.Lost {
			counts[i] = map[string]int{}
			out = append(out, r.item(c, d))
		}
		err := n.each(ctx, c.API, func(o *unstructured.Unstructured) {
			if o.GetAnnotations()[api.AnnotationName] != "" && len(o.GetOwnerReferences()) > 0 {
				return // the controller makes leaves again
			}
			at, used := o.GetAnnotations()[kcpapi.AnnotationCluster], false
			for i, d := range c.Lost {
				if d.In(o.Object) {
					counts[i][at]++
					used = true
				}
			}
			if used {
				r.objects++
				all[at] = true
			}
		})
		if err != nil {
			return nil, fmt.Errorf("count the objects of %s: %w", c.API, err)
		}
		uses = append(uses, counts...)
	}
	paths := n.paths(ctx, slices.Collect(maps.Keys(all)))
	r.workspaces = len(all)
	for i := range out {
		out[i].setUses(uses[i], paths)
	}
	return out, nil
}

// paths returns the paths of the workspaces of logical clusters, by name. If a path does not exist, or cannot be
// read, the name is used. The group of kcpctl has all permissions in all workspaces (kcp:
// pkg/authorization/bootstrap/policy.go, SystemKcpAdminGroup).
func (c *compute) paths(ctx context.Context, clusters []string) map[string]string {
	paths := parallel.Map(parallel.Limit, clusters, func(name string) string {
		o, err := c.Object(ctx, kcp.Place{Workspace: name,
			GroupVersionKind: kcpapi.LogicalCluster.GroupVersionKind, Name: "cluster"})
		if err != nil || o == nil {
			return name
		}
		return cmp.Or(o.GetAnnotations()[kcpapi.AnnotationPath], name)
	})
	out := map[string]string{}
	for i, name := range clusters {
		out[name] = paths[i]
	}
	return out
}

// setUses sets the number of objects, with the workspaces that have most of them first.
func (c *schemaChange) setUses(counts map[string]int, paths map[string]string) {
	total := 0
	for name, count := range counts {
		total += count
		c.Workspaces = append(c.Workspaces, workspaceUse{paths[name], count})
	}
	slices.SortFunc(c.Workspaces, func(a, b workspaceUse) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), cmp.Compare(a.Workspace, b.Workspace))
	})
	c.Objects = &total
}

func (c schemaChange) api() string {
	return schema.GroupResource{Group: c.Group, Resource: c.Resource}.String()
}

// preview is a row of the table of all that can change.
func (c schemaChange) preview() []string {
	request := noValue
	switch c.Request {
	case requestNarrow:
		request = "--narrow " + c.Cluster
	case requestWiden:
		request = "--widen"
	}
	return []string{c.api(), cmp.Or(c.Cluster, noValue), request, cmp.Or(c.Path, noValue), firstLine(c.Message)}
}

func previewColumns() []string { return []string{"API", "CLUSTER", "REQUEST", "FIELD", "DIFFERENCE"} }

// field is a row of the table of the changes of a request.
func (c schemaChange) field() []string {
	objects := noValue
	workspaces := noValue
	if c.Objects != nil {
		objects = fmt.Sprint(*c.Objects)
	}
	var all []string
	for _, w := range c.Workspaces {
		all = append(all, fmt.Sprintf("%s (%d)", w.Workspace, w.Objects))
	}
	if len(all) > 0 {
		workspaces = gather.Few(all, shownWorkspaces, ", ")
	}
	return []string{c.api(), cmp.Or(c.Path, noValue), firstLine(c.Message), objects, workspaces}
}

func fieldColumns() []string { return []string{"API", "FIELD", "DIFFERENCE", "OBJECTS", "WORKSPACES"} }

// printChanges prints a table.
func printChanges(w io.Writer, all []schemaChange, header []string, row func(schemaChange) []string) {
	var rows [][]string
	for _, c := range all {
		rows = append(rows, row(c))
	}
	ui.Table(w, header, rows...)
}
