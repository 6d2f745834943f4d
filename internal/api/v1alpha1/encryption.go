package v1alpha1

// Encryption encrypts objects before shards write them to etcd, with keys that kcpctl creates and keeps with the
// private keys of the CAs, or with a KMS. All shards have the same keys. In an installation that runs, kcpctl
// encryption rotate brings a change into effect.
type Encryption struct {
	// Resources are the resources whose objects are encrypted: secrets, configmaps. Default: secrets.
	Resources []string `json:"resources,omitempty"`
	// KMS encrypts instead of a key of kcpctl.
	KMS *KMS `json:"kms,omitempty"`
}

// KMS is a key management service that shards reach through a plugin of Kubernetes, KMS v2. The plugins of all shards
// must lead to the same service.
type KMS struct {
	// Name stands for the service. Another name is another service. Default: kms.
	Name string `json:"name,omitempty"`
	// Endpoint is the socket of the plugin in the pods of shards, for instance unix:///run/kms/kms.sock. The
	// podTemplate of shards mounts it.
	Endpoint string `json:"endpoint"`
}
