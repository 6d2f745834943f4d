package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// WorkloadLimits are what one workspace may have, so that it does not fill the memory of the controller. What is beyond them is not
// scheduled: its condition Scheduled is False, with the reason TooLarge.
type WorkloadLimits struct {
	// ObjectsPerWorkspace is the number of objects of the published APIs. Default: 10000.
	ObjectsPerWorkspace *int32 `json:"objectsPerWorkspace,omitempty"`
	// BytesPerWorkspace is the size of these objects together, as JSON. Default: 64Mi.
	BytesPerWorkspace *resource.Quantity `json:"bytesPerWorkspace,omitempty"`
}
