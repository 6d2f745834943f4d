package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Authorization configures how shards authorize requests, after front-proxies or shards have authenticated them.
type Authorization struct {
	// Webhook asks a server about requests that no other authorizer allows or denies.
	Webhook *AuthorizationWebhook `json:"webhook,omitempty"`
	// Order is the order of the authorizers: the first one that allows or denies a request decides. AlwaysAllowGroups
	// and AlwaysAllowPaths come first, because probes and kcp itself need them. To let the webhook deny what roles
	// allow, put Webhook before RBAC. Default: AlwaysAllowGroups, AlwaysAllowPaths, RBAC, Webhook.
	Order []string `json:"order,omitempty"`
	// AlwaysAllowPaths are paths that need no permissions, besides /healthz, /livez and /readyz. A trailing * matches
	// any suffix.
	AlwaysAllowPaths []string `json:"alwaysAllowPaths,omitempty"`
}

// AuthorizationWebhook is a server that implements the SubjectAccessReview API.
type AuthorizationWebhook struct {
	// SecretKey is the kubeconfig of the server, without references to files. Default of the key: kubeconfig.
	SecretKey `json:",inline"`
	// Version is the version of the SubjectAccessReview API: v1 or v1beta1. Default: v1.
	Version string `json:"version,omitempty"`
	// CacheAuthorizedTTL is how long kcp caches that a request is allowed. Default of kcp: 5m.
	CacheAuthorizedTTL metav1.Duration `json:"cacheAuthorizedTTL,omitzero"`
	// CacheUnauthorizedTTL is how long kcp caches that a request is not allowed. Default of kcp: 30s.
	CacheUnauthorizedTTL metav1.Duration `json:"cacheUnauthorizedTTL,omitzero"`
}

// HomeWorkspaces configures the workspaces that users get when they first use kubectl ws ~.
type HomeWorkspaces struct {
	// Enabled creates them. Default: true.
	Enabled *bool `json:"enabled,omitempty"`
	// CreatorGroups are the groups whose users get one. Default: system:authenticated.
	CreatorGroups []string `json:"creatorGroups,omitempty"`
}
