package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// WorkloadLimits are what one workspace may have, so that it does not fill the memory of the controller. When a workspace has reached a limit,
// objects that have not been scheduled yet stay unscheduled: their condition Scheduled is False, with the reason TooManyObjects or TooLarge. What is
// scheduled stays, is updated, and moves.
type WorkloadLimits struct {
	// ObjectsPerWorkspace is how many objects of a workspace may be scheduled to clusters. One on three clusters counts three times. Default: 10000.
	ObjectsPerWorkspace *int32 `json:"objectsPerWorkspace,omitempty"`
	// BytesPerWorkspace is how large the objects of a workspace may be together, as JSON: those of the published APIs, ConfigMaps, Secrets and
	// ServiceAccounts, and each of them again for each cluster where it is. Default: 256Mi.
	BytesPerWorkspace *resource.Quantity `json:"bytesPerWorkspace,omitempty"`
}
