package topology

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// The labels and annotations of kcpctl's objects.
const (
	LabelSetup     = "kcpctl.dev/setup"
	LabelComponent = "kcpctl.dev/component"
	LabelName      = "kcpctl.dev/name"
	// AnnotationChecksum on a pod changes with the content of what the pod mounts, so that a change rolls it.
	AnnotationChecksum = "kcpctl.dev/config-checksum"
	// LabelApplySet marks the members of the set of objects that a setup applied (the ApplySet format of kubectl).
	LabelApplySet = "applyset.kubernetes.io/part-of"
	// ManagedBy is kcpctl's name where Kubernetes asks who manages an object.
	ManagedBy = "kcpctl"
)

// Selector is what tells a component's pods from all others. It never changes during a component's life.
func (c *Component) Selector() map[string]string {
	name := c.Name
	if name == "" {
		name = string(c.Kind)
	}
	return map[string]string{LabelSetup: c.Setup, LabelComponent: string(c.Kind), LabelName: name}
}

// Labels are on every object of a component.
func (c *Component) Labels() map[string]string {
	l := c.Selector()
	l["app.kubernetes.io/name"] = "kcp"
	if c.Kind == Etcd {
		l["app.kubernetes.io/name"] = "etcd"
	}
	l["app.kubernetes.io/instance"] = c.Setup
	l["app.kubernetes.io/component"] = string(c.Kind)
	l["app.kubernetes.io/managed-by"] = ManagedBy
	return l
}

// IDFromLabels is the component that an object with these labels belongs to.
func IDFromLabels(l map[string]string) ID {
	return IDOf(Kind(l[LabelComponent]), l[LabelName])
}

// InventoryPart is the part of the name of the Secret that remembers what was applied to a cluster.
const InventoryPart = "inventory"

// ApplySet is the ID of the set of objects that the setup has on a cluster: its parent is the inventory Secret there
// (kubectl: pkg/cmd/apply/applyset.go).
func (t *Topology) ApplySet(cl Cluster) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s.%s.Secret.", t.Object(InventoryPart), cl.Namespace))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}
