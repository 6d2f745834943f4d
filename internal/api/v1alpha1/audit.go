package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Audit records requests to shards and their virtual workspaces. An event has the path of the workspace in the
// annotation kcp.io/path, which is empty for root, and its logical cluster in kcp.io/cluster.
type Audit struct {
	// Policy decides which requests are recorded, and how much of them.
	Policy AuditPolicy `json:"policy"`
	// Log writes events to the output of the server, which kcpctl logs prints. Write {} for the defaults of kcp.
	// Default: {} if there is no webhook.
	Log *AuditBackend `json:"log,omitempty"`
	// Webhook sends events to a server.
	Webhook *AuditWebhook `json:"webhook,omitempty"`
}

// AuditPolicyVersion and AuditPolicyKind are the type of a Policy in a file or a ConfigMap.
const (
	AuditPolicyVersion = "audit.k8s.io/v1"
	AuditPolicyKind    = "Policy"
)

// AuditPolicy is a Policy of audit.k8s.io/v1: either its rules, or a file or a ConfigMap that has it.
type AuditPolicy struct {
	// File is the path of a file with a Policy, relative to the setup file.
	File string `json:"file,omitempty"`
	// ConfigMap is the name of a ConfigMap with a Policy, in the namespaces of all components that use it.
	ConfigMap string `json:"configMap,omitempty"`
	// Key is the key in the ConfigMap. Default: policy.yaml.
	Key        string `json:"key,omitempty"`
	AuditRules `json:",inline"`
}

// AuditRules decide which requests are recorded, and how much of them.
type AuditRules struct {
	// OmitStages are stages of requests of which nothing is recorded: RequestReceived, ResponseStarted,
	// ResponseComplete, Panic.
	OmitStages []string `json:"omitStages,omitempty"`
	// OmitManagedFields leaves the managed fields of objects out. Default: false.
	OmitManagedFields bool `json:"omitManagedFields,omitempty"`
	// Rules decide how much is recorded of a request: the first one that matches it. Nothing is recorded if none does.
	Rules []AuditRule `json:"rules,omitempty"`
}

// AuditRule matches requests by all fields that are set. A field that is not set matches all requests.
type AuditRule struct {
	// Level is how much is recorded: None, Metadata, Request or RequestResponse.
	Level string `json:"level"`
	// Users are names of users.
	Users []string `json:"users,omitempty"`
	// UserGroups are groups: one of them is enough.
	UserGroups []string `json:"userGroups,omitempty"`
	// Verbs are verbs, such as create.
	Verbs []string `json:"verbs,omitempty"`
	// Resources are resources of API groups.
	Resources []AuditResources `json:"resources,omitempty"`
	// Namespaces are namespaces in workspaces. The empty string is for objects without a namespace.
	Namespaces []string `json:"namespaces,omitempty"`
	// NonResourceURLs are paths such as /healthz. A trailing * matches any suffix.
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	// OmitStages are more stages of which nothing is recorded.
	OmitStages []string `json:"omitStages,omitempty"`
	// OmitManagedFields leaves the managed fields of objects out. Default: omitManagedFields of the policy.
	OmitManagedFields *bool `json:"omitManagedFields,omitempty"`
}

// AuditResources are resources of an API group.
type AuditResources struct {
	// Group is the API group. The empty string is the core group.
	Group string `json:"group,omitempty"`
	// Resources are resources such as secrets or pods/log. A * matches all. Default: all of the group.
	Resources []string `json:"resources,omitempty"`
	// ResourceNames are names of objects.
	ResourceNames []string `json:"resourceNames,omitempty"`
}

// AuditBackend is how events are written. Fields that are not set have the defaults of kcp.
type AuditBackend struct {
	// Mode is batch, blocking or blocking-strict. With batch, a request does not wait for its event, and events are
	// lost if the server ends. Default of kcp: blocking for log, batch for webhook.
	Mode string `json:"mode,omitempty"`
	// BatchBufferSize is how many events wait. Further events are lost.
	BatchBufferSize *int32 `json:"batchBufferSize,omitempty"`
	// BatchMaxSize is how many events are written together.
	BatchMaxSize *int32 `json:"batchMaxSize,omitempty"`
	// BatchMaxWait is how long events wait for others.
	BatchMaxWait metav1.Duration `json:"batchMaxWait,omitzero"`
	// BatchThrottleEnable limits how many batches are written per second.
	BatchThrottleEnable *bool `json:"batchThrottleEnable,omitempty"`
	// BatchThrottleQPS is this limit.
	BatchThrottleQPS *float64 `json:"batchThrottleQPS,omitempty"`
	// BatchThrottleBurst is how many batches are written at once after a time with fewer.
	BatchThrottleBurst *int32 `json:"batchThrottleBurst,omitempty"`
	// TruncateEnabled shortens large events. Default: true if a size is set.
	TruncateEnabled *bool `json:"truncateEnabled,omitempty"`
	// TruncateMaxBatchSize is the size of a batch in bytes.
	TruncateMaxBatchSize *int64 `json:"truncateMaxBatchSize,omitempty"`
	// TruncateMaxEventSize is the size of an event in bytes. Larger ones lose the request and the response.
	TruncateMaxEventSize *int64 `json:"truncateMaxEventSize,omitempty"`
}

// AuditWebhook is a server that receives events.
type AuditWebhook struct {
	// SecretKey is the kubeconfig of the server, without references to files. Default of the key: kubeconfig.
	SecretKey    `json:",inline"`
	AuditBackend `json:",inline"`
	// InitialBackoff is the time before the first failed request is repeated.
	InitialBackoff metav1.Duration `json:"initialBackoff,omitzero"`
}
