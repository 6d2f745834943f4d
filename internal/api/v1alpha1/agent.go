package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Agent is an api-syncagent: it publishes APIs of a cluster in a workspace, and synchronizes their objects.
type Agent struct {
	// Name is a DNS label that begins with a letter. The agent marks the copies of objects with it, so kcpctl up
	// refuses to change it.
	Name string `json:"name"`
	// Cluster is the name of the cluster whose APIs are published, and on which the agent runs. It needs no other
	// component. kcpctl up refuses to change it, and a new agent in the namespace with the keys of pki.store Cluster.
	// Default: the cluster of the root shard, where these keys are.
	Cluster string `json:"cluster,omitempty"`
	// Version is the release of the api-syncagent. Default: the release that was tested with spec.version.
	Version string `json:"version,omitempty"`
	// Image overrides fields of the image. Default: ghcr.io/kcp-dev/api-syncagent, with the version as its tag, and
	// with the pull policy and the pull secrets of spec.image.
	Image Image `json:"image,omitzero"`
	// Workspace is the path of the workspace of the APIExport, such as root:widgets.
	Workspace string `json:"workspace"`
	// APIExport is the name of the APIExport, and of its APIBindings. Only one agent may publish through it, and a
	// workspace can bind only one of each name. Default: the name of the agent.
	APIExport string `json:"apiExport,omitempty"`
	// Bind are the paths of the workspaces in which kcpctl up binds the APIExport, and accepts its permission claims.
	// It creates those that do not exist. kcp serves an APIExport only on shards where a workspace binds it. Default:
	// the workspace of the APIExport.
	Bind []string `json:"bind,omitempty"`
	// PublishedResources are the APIs that the agent publishes.
	PublishedResources []PublishedResource `json:"publishedResources,omitempty"`
	// Definitions are CustomResourceDefinitions that kcpctl creates on the agent's cluster if they do not exist. It
	// neither changes nor removes them, because their objects would go with them. Leave them out if something else
	// installs them, such as an operator.
	Definitions []Object `json:"definitions,omitempty"`
	// Permissions are rules for the agent on its cluster, in addition to those that the published resources need.
	Permissions []rbacv1.PolicyRule `json:"permissions,omitempty"`
	// Paused stops the agent. Objects are kept unchanged and are synchronized again later. Deleted objects wait for it.
	Paused bool `json:"paused,omitempty"`
	// Replicas is the number of replicas. One of them synchronizes, the others replace it if it fails. Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources are the resources of the container. Default: small requests, and no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec that is merged into the rendered one.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// LogLevel is the log level of the agent, between 0 and 10. The agent logs details from 4. Default: 2.
	LogLevel *int32 `json:"logLevel,omitempty"`
	// ExtraArgs are additional flags such as --name=value. They replace flags of the same name that kcpctl sets, except
	// flags for which there is a field, and flags from which kcpctl derives certificates and connections.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// PublishedResource is an API that an agent publishes: either a file, or a name and a spec.
type PublishedResource struct {
	// File is a file with manifests of kind PublishedResource, or a pattern such as widgets/*.yaml, relative to the
	// setup file.
	File string `json:"file,omitempty"`
	// Name is the name of the PublishedResource.
	Name string `json:"name,omitempty"`
	// Plural is the plural of the published kind on the cluster, for the permissions of the agent. A file with it has
	// one manifest. Default: the usual plural of the kind, such as widgets for Widget.
	Plural string `json:"plural,omitempty"`
	// Spec is the spec of the PublishedResource (api-syncagent: sdk/apis/syncagent/v1alpha1). Fields that kcpctl does
	// not know are passed on.
	Spec Object `json:"spec,omitempty"`
}

// Object is a part of a Kubernetes object that is passed on as it is.
type Object map[string]any
