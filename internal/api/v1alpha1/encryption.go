package v1alpha1

// Encryption encrypts objects before shards write them to etcd, with keys that kcpctl creates and keeps with the
// private keys of the CAs. All shards have the same keys. In an installation that runs, kcpctl encryption rotate
// brings a change into effect.
type Encryption struct {
	// Resources are the resources whose objects are encrypted: secrets, configmaps. Default: secrets.
	Resources []string `json:"resources,omitempty"`
}
