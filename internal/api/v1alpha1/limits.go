package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// WorkloadLimits limit the objects of one workspace, so that it does not fill the memory of the controller. When a
// workspace has reached a limit, objects that have not been scheduled yet remain unscheduled: their condition Scheduled
// is False, with the reason TooManyObjects or TooLarge. Scheduled objects are kept, and are still updated and moved.
type WorkloadLimits struct {
	// ObjectsPerWorkspace is how many objects of a workspace may be scheduled to clusters. One on three clusters counts
	// three times. Default: 10000.
	ObjectsPerWorkspace *int32 `json:"objectsPerWorkspace,omitempty"`
	// BytesPerWorkspace is the maximum total size of the objects of a workspace, as JSON: objects of the published
	// APIs, ConfigMaps, Secrets and ServiceAccounts, and each of them again for each cluster where it is. Default:
	// 256Mi.
	BytesPerWorkspace *resource.Quantity `json:"bytesPerWorkspace,omitempty"`
}
