package v1alpha1

// TakeOver is an installation of kcp-operator, in the namespace of the root shard, that a setup takes over. kcpctl
// import writes it. Nothing of another installation in that namespace is taken over or removed.
type TakeOver struct {
	// RootShard is the name of the RootShard that the setup was imported from.
	RootShard string `json:"rootShard"`
	// UID is the UID of that RootShard. A RootShard of the same name with another UID is another installation.
	UID string `json:"uid,omitempty"`
}
