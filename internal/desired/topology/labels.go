package topology

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The labels and annotations of kcpctl's objects.
const (
	LabelSetup     = "kcpctl.dev/setup"
	LabelComponent = "kcpctl.dev/component"
	LabelName      = "kcpctl.dev/name"
	// LabelAppComponent is the label of Kubernetes for the kind of a component.
	LabelAppComponent = "app.kubernetes.io/component"
	// AnnotationChecksum is on pods. It changes with the content of the files that the pod mounts, so that a change
	// rolls the pod.
	AnnotationChecksum = "kcpctl.dev/config-checksum"
	// AnnotationRestartedAt is on pods that a user has restarted, with the time. Later runs keep it: without it, the
	// pods would start again.
	AnnotationRestartedAt = "kcpctl.dev/restarted-at"
	// AnnotationRelease is on objects that all setups of a cluster share. Its value is the release that they come from.
	AnnotationRelease = "kcpctl.dev/release"
	// AnnotationTakeOver is on objects of kcp-operator whose installation a setup has taken over, with the time of the
	// last look.
	AnnotationTakeOver = "kcpctl.dev/take-over"
	// LabelPurpose is on pods that kcpctl creates for itself, for a short time. Its values are PurposeReachability and
	// PurposeRestore.
	LabelPurpose        = "kcpctl.dev/purpose"
	PurposeReachability = "reachability"
	PurposeRestore      = "restore"
	// LabelInstallation is on the objects in workspaces, with the ID of the installation that applied them, and
	// AnnotationComponent has the ID of their component. The ID of a workspace is not a valid label.
	LabelInstallation   = "kcpctl.dev/installation"
	AnnotationComponent = "kcpctl.dev/component"
	// AnnotationUse is on objects in workspaces that the setup uses and does not own: with UseExisting they are created
	// if they do not exist, and otherwise left alone.
	AnnotationUse = "kcpctl.dev/use"
	UseExisting   = "existing"
	// AnnotationClaims is on APIBindings. With AcceptAll a run accepts the permission claims that the APIExport has
	// when the APIBinding is created, with AcceptDerived those that follow from an agent, as far as the APIExport asks
	// for them.
	AnnotationClaims = "kcpctl.dev/permission-claims"
	AcceptAll        = "accept-all"
	AcceptDerived    = "accept-derived"
	// AnnotationCredential is on Secrets whose content is issued when they are applied: a kubeconfig for a cluster,
	// with a token of the ServiceAccount of their component there. Its value is the place: OnPhysical or
	// OnServiceCluster.
	AnnotationCredential = "kcpctl.dev/credential"
	// LabelApplySet marks the objects that a setup applied to a cluster (the ApplySet format of kubectl).
	LabelApplySet = "applyset.kubernetes.io/part-of"
	// LabelShardRegion is on Shard objects in kcp, which shows it in the column REGION (kcp:
	// config/crds/core.kcp.io_shards.yaml).
	LabelShardRegion = "region"
	// ManagedBy is the name of kcpctl, where Kubernetes asks which tool manages an object.
	ManagedBy = "kcpctl"
)

// Selector returns the labels that select a component's pods. They never change during the life of a component.
func (c *Component) Selector() map[string]string { return SelectorOf(c.Setup, c.Kind, c.Name) }

// SelectorOf returns the labels that all objects of a component have. Without a name, it has its kind as the name: an
// empty value would select nothing.
func SelectorOf(setup string, k Kind, name string) map[string]string {
	return map[string]string{LabelSetup: setup, LabelComponent: string(k), LabelName: cmp.Or(name, string(k))}
}

// Labels returns the labels of every object of a component.
func (c *Component) Labels() map[string]string {
	l := c.Selector()
	l["app.kubernetes.io/name"] = "kcp"
	if c.Kind == Etcd {
		l["app.kubernetes.io/name"] = "etcd"
	}
	l["app.kubernetes.io/instance"] = c.Setup
	l[LabelAppComponent] = string(c.Kind)
	l["app.kubernetes.io/managed-by"] = ManagedBy
	return l
}

// nameOfNone is a value of LabelName that no component has: names have no dots.
const nameOfNone = "kcpctl.probe"

// ProbeLabels returns the labels of pods that try addresses of a setup. No component has them, so that no Service,
// no NetworkPolicy and no status counts the pods as its own. NetworkPolicies of servers admit the pods as
// shards, which connect to servers of all kinds.
func ProbeLabels(setup string) map[string]string {
	return map[string]string{
		LabelSetup: setup, LabelComponent: string(Shard), LabelName: nameOfNone, LabelPurpose: PurposeReachability,
	}
}

// IsOwnKey reports whether kcpctl sets labels or annotations with a key itself.
func IsOwnKey(key string) bool {
	prefix, name, _ := strings.Cut(key, "/")
	switch prefix {
	case "kcpctl.dev", "applyset.kubernetes.io":
		return true
	case "app.kubernetes.io":
		return slices.Contains([]string{"name", "instance", "component", "managed-by"}, name)
	}
	return false
}

// AddTo adds the labels and annotations of all objects on a cluster to an object that does not have them.
func (cl Cluster) AddTo(o metav1.Object) {
	o.SetLabels(withMissing(o.GetLabels(), cl.Metadata.Labels))
	o.SetAnnotations(withMissing(o.GetAnnotations(), cl.Metadata.Annotations))
}

// SetOn sets the labels and annotations of all objects on a cluster on an object, also those that it has.
func (cl Cluster) SetOn(o metav1.Object) {
	o.SetLabels(withMissing(cl.Metadata.Labels, o.GetLabels()))
	o.SetAnnotations(withMissing(cl.Metadata.Annotations, o.GetAnnotations()))
}

func withMissing(own, common map[string]string) map[string]string {
	if len(common) == 0 {
		return own
	}
	out := maps.Clone(common)
	maps.Copy(out, own)
	return out
}

// IDFromLabels returns the component that an object with these labels belongs to.
func IDFromLabels(l map[string]string) ID {
	return IDOf(Kind(l[LabelComponent]), l[LabelName])
}

// ApplySet returns the ID of the set of objects that the setup has on a cluster. The parent of the set is the
// inventory Secret of that cluster (kubectl: pkg/cmd/apply/applyset.go).
func (t *Topology) ApplySet(cl Cluster) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s.%s.Secret.", t.Object(InventoryPart), cl.Namespace))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}
