package v1alpha1

// Autoscaling lets a HorizontalPodAutoscaler of Kubernetes set the number of replicas. The cluster needs an API for the
// metrics of pods, such as metrics-server.
type Autoscaling struct {
	// MinReplicas is the smallest number of replicas. Default: 1.
	MinReplicas int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the largest number of replicas.
	MaxReplicas int32 `json:"maxReplicas"`
	// TargetCPUUtilizationPercentage is how much CPU replicas use on average, in percent of what they request. With
	// more, replicas are added. Default: 80.
	TargetCPUUtilizationPercentage int32 `json:"targetCPUUtilizationPercentage,omitempty"`
}
