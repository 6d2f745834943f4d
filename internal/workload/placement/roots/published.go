package roots

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Published are the APIs in the APIExport.
type Published struct {
	// Scheduled are the APIs whose objects are scheduled.
	Scheduled []schema.GroupVersionResource
	// Removed are the APIs that the setup no longer has. Their objects in clusters are kept, and are counted.
	Removed []schema.GroupVersionResource
}

func (p *Published) apis() []schema.GroupVersionResource {
	if p == nil {
		return nil
	}
	return slices.Concat(p.Scheduled, p.Removed)
}

// watched returns what is watched: the published APIs, what workloads need besides, namespaces, and APIBindings.
func (p *Published) watched() []schema.GroupVersionResource {
	if p == nil {
		return nil
	}
	return slices.Concat(p.apis(), api.Dependencies(),
		[]schema.GroupVersionResource{api.Namespaces(), kcpapi.APIBinding.GVR()})
}

func (p *Published) scheduled() []schema.GroupVersionResource {
	if p == nil {
		return nil
	}
	return p.Scheduled
}

// nothing reports whether it is known that no API is published.
func (p *Published) nothing() bool { return p != nil && len(p.Scheduled)+len(p.Removed) == 0 }

func (p *Published) removed(r schema.GroupVersionResource) bool {
	return p != nil && slices.Contains(p.Removed, r)
}
