// Package agent has what kcpctl knows of the api-syncagent: what a PublishedResource means, whether the agent will
// accept it, and the permissions that an agent needs on both of its sides. It reads nothing: its results depend only on
// its arguments.
package agent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// The API of the agent (api-syncagent: sdk/apis/syncagent/v1alpha1).
const (
	Group      = "syncagent.kcp.io"
	APIVersion = Group + "/v1alpha1"
	Kind       = "PublishedResource"
	Resource   = "publishedresources"
	// Finalizer is on every object that an agent has copied, until it has deleted the copy (api-syncagent:
	// internal/sync/types.go).
	Finalizer = Group + "/cleanup"
	// AnnotationName has the name of the agent that publishes through an APIExport (api-syncagent:
	// internal/controller/apiexport/reconciler.go, which overwrites the name of another one). Copies have a label of
	// the same name: an agent watches only copies with its own name, and gives the label to what it creates
	// (api-syncagent: internal/controller/sync/controller.go, nameFilter).
	AnnotationName = Group + "/agent-name"
)

// The sides on which an original object can be.
const (
	originService = "service"
	originKcp     = "kcp"
)

// spec has the fields of a PublishedResource that kcpctl interprets.
type spec struct {
	Resource struct {
		APIGroup string   `json:"apiGroup"`
		Kind     string   `json:"kind"`
		Version  string   `json:"version"`
		Versions []string `json:"versions"`
	} `json:"resource"`
	Filter struct {
		Namespace *metav1.LabelSelector `json:"namespace"`
		Resource  *metav1.LabelSelector `json:"resource"`
	} `json:"filter"`
	Naming struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"naming"`
	EnableWorkspacePaths bool       `json:"enableWorkspacePaths"`
	Projection           projection `json:"projection"`
	Mutation             *mutations `json:"mutation"`
	Related              []related  `json:"related"`
	Synchronization      *struct {
		Enabled bool `json:"enabled"`
	} `json:"synchronization"`
}

type projection struct {
	Group    string            `json:"group"`
	Version  string            `json:"version"`
	Versions map[string]string `json:"versions"`
	Scope    string            `json:"scope"`
	Kind     string            `json:"kind"`
	Plural   string            `json:"plural"`
}

type mutations struct {
	Spec   []mutation `json:"spec"`
	Status []mutation `json:"status"`
}

type mutation struct {
	Delete   *struct{}   `json:"delete"`
	Regex    *expression `json:"regex"`
	Template *template   `json:"template"`
	CEL      *struct {
		Expression string `json:"expression"`
	} `json:"cel"`
}

type expression struct {
	Pattern string `json:"pattern"`
}

type template struct {
	Template string `json:"template"`
}

type related struct {
	Identifier   string `json:"identifier"`
	Origin       string `json:"origin"`
	Group        string `json:"group"`
	Version      string `json:"version"`
	Resource     string `json:"resource"`
	Kind         string `json:"kind"`
	IdentityHash string `json:"identityHash"`
	Cleanup      bool   `json:"cleanup"`
	Projection   struct {
		Group    string `json:"group"`
		Version  string `json:"version"`
		Resource string `json:"resource"`
	} `json:"projection"`
	Object struct {
		location
		Namespace *location `json:"namespace"`
	} `json:"object"`
	Mutation *mutations `json:"mutation"`
	Watch    *struct {
		ByOwner    *struct{}             `json:"byOwner"`
		BySelector *metav1.LabelSelector `json:"bySelector"`
	} `json:"watch"`
}

// location is how the agent finds an object or its namespace.
type location struct {
	Selector *struct {
		MatchLabels map[string]string `json:"matchLabels"`
		Rewrite     struct {
			Regex    *expression `json:"regex"`
			Template *template   `json:"template"`
		} `json:"rewrite"`
	} `json:"selector"`
	Reference *struct {
		Path  string      `json:"path"`
		Regex *expression `json:"regex"`
	} `json:"reference"`
	Template *template `json:"template"`
}

// decode returns the fields of a spec that kcpctl interprets. It omits fields of another type, which Validate reports.
func decode(o v1alpha1.Object) spec {
	var s spec
	data, err := json.Marshal(o)
	if err == nil {
		_ = json.Unmarshal(data, &s) // on fields of another type, it continues with the others
	}
	return s
}

// source returns the group and the plural of the published kind on the service cluster.
func (s *spec) source(plural string) schema.GroupResource {
	if plural == "" {
		plural = Plural(s.Resource.Kind)
	}
	return schema.GroupResource{Group: s.Resource.APIGroup, Resource: plural}
}

// projected returns the group and the plural of the published kind in kcp (api-syncagent: internal/projection,
// projectCRDNames).
func (s *spec) projected(plural string) schema.GroupResource {
	out := s.source(plural)
	if s.Projection.Group != "" {
		out.Group = s.Projection.Group
	}
	if s.Projection.Kind != "" {
		out.Resource = strings.ToLower(s.Projection.Kind) + "s"
	}
	if s.Projection.Plural != "" {
		out.Resource = s.Projection.Plural
	}
	return out
}

// synchronized reports whether the agent copies the objects of the published kind.
func (s *spec) synchronized() bool { return s.Synchronization == nil || s.Synchronization.Enabled }

// projectedKind returns the published kind in kcp.
func (s *spec) projectedKind() schema.GroupKind {
	return schema.GroupKind{
		Group: cmp.Or(s.Projection.Group, s.Resource.APIGroup), Kind: cmp.Or(s.Projection.Kind, s.Resource.Kind),
	}
}

// original returns the related resource on the side where its objects come from.
func (r *related) original() schema.GroupResource {
	switch r.Kind {
	case "ConfigMap":
		return schema.GroupResource{Resource: "configmaps"}
	case "Secret":
		return schema.GroupResource{Resource: "secrets"}
	}
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// copied returns the related resource on the side where its objects are copied to.
func (r *related) copied() schema.GroupResource {
	out := r.original()
	if r.Projection.Group != "" {
		out.Group = r.Projection.Group
	}
	if r.Projection.Resource != "" {
		out.Resource = r.Projection.Resource
	}
	return out
}

// inKcp and inService return the related resource on one side (api-syncagent: internal/projection,
// RelatedResourceKcpGVR).
func (r *related) inKcp() schema.GroupResource {
	if r.Origin == originKcp {
		return r.original()
	}
	return r.copied()
}

func (r *related) inService() schema.GroupResource {
	if r.Origin == originKcp {
		return r.copied()
	}
	return r.original()
}

// Plural returns the most likely plural of a kind: widgets for Widget.
func Plural(kind string) string {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return plural.Resource
}

// PublishedKind is a kind that an agent publishes.
type PublishedKind struct {
	// Name is the name of the PublishedResource.
	Name string
	// GroupKind is the kind on the service cluster, and Plural its plural there, as far as the setup file tells.
	schema.GroupKind
	Plural string
	// Versions are the selected versions. It is empty for all versions.
	Versions []string
	// Projected is the resource in kcp, and ProjectedKind its kind.
	Projected     schema.GroupResource
	ProjectedKind schema.GroupKind
	// Synchronized means that the agent copies its objects. Otherwise it only publishes the schema.
	Synchronized bool
	// Filter selects the objects that the agent copies.
	Filter Filter
}

// Kinds returns the kinds that an agent publishes.
func Kinds(a *v1alpha1.Agent) []PublishedKind {
	var out []PublishedKind
	for _, p := range a.PublishedResources {
		s := decode(p.Spec)
		versions := slices.Clone(s.Resource.Versions)
		if s.Resource.Version != "" {
			versions = []string{s.Resource.Version}
		}
		out = append(out, PublishedKind{
			Name: p.Name, GroupKind: schema.GroupKind{Group: s.Resource.APIGroup, Kind: s.Resource.Kind},
			Plural: s.source(p.Plural).Resource, Versions: versions, Projected: s.projected(p.Plural),
			ProjectedKind: s.projectedKind(), Synchronized: s.synchronized(),
			Filter: Filter{selectorOf(s.Filter.Resource), selectorOf(s.Filter.Namespace)},
		})
	}
	return out
}
