package operator

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Origin is the RootShard that a setup was imported from.
type Origin struct {
	Name string
	// UID is empty if it is not known.
	UID string
}

// OriginOf returns the RootShard that a setup was imported from: spec.takeOver, or in setups of earlier releases the
// RootShard whose Service is an alias of the root shard.
func OriginOf(t *topology.Topology) (Origin, error) {
	if from := t.Setup.Spec.TakeOver; from != nil {
		return Origin{Name: from.RootShard, UID: from.UID}, nil
	}
	var names []string
	for _, alias := range t.Setup.Spec.RootShard.Aliases {
		if name, ok := strings.CutSuffix(alias, Service(kindRootShard, "")); ok && name != "" {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return Origin{}, clierr.New(clierr.BadInput,
			"set spec.takeOver.rootShard to the name of its RootShard, or write the setup file with kcpctl import "+
				"--from-cluster",
			"setup %q does not say which installation of %s it takes over", t.Name, ManagedBy)
	}
	return Origin{Name: names[0]}, nil
}

// Object names an object of kcp-operator's APIs.
type Object struct{ Kind, Name string }

// String is the kind and the name.
func (o Object) String() string { return o.Kind + " " + o.Name }

const (
	kindRootShard        = "RootShard"
	kindShard            = "Shard"
	kindFrontProxy       = "FrontProxy"
	kindVirtualWorkspace = "VirtualWorkspace"
	kindCacheServer      = "CacheServer"

	labelPrefix    = "app.kubernetes.io/"
	labelManagedBy = labelPrefix + "managed-by"
)

// components are the kinds by the label app.kubernetes.io/component of what kcp-operator makes for them (kcp-operator:
// internal/resources/resources.go).
var components = map[string]string{
	"rootshard": kindRootShard, "rootshard-proxy": kindRootShard, "shard": kindShard, "front-proxy": kindFrontProxy,
	"virtual-workspace": kindVirtualWorkspace, "cache-server": kindCacheServer,
}

// Labels are those that all pods of kcp-operator's components have.
func Labels() map[string]string { return map[string]string{labelManagedBy: ManagedBy} }

// Owned reports whether kcp-operator has made an object: by its owners, or by its labels on clusters without
// kcp-operator.
func Owned(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return OwnGroup(r.APIVersion) }) ||
		o.GetLabels()[labelManagedBy] == ManagedBy || labelled(o)
}

// labelled reports whether an object has a label of kcp-operator, as the Secrets of its certificates have: cert-manager
// makes them, without an owner.
func labelled(o *unstructured.Unstructured) bool {
	for key := range o.GetLabels() {
		if strings.HasPrefix(key, Group+"/") {
			return true
		}
	}
	return false
}

// MadeFor returns the object of kcp-operator's APIs that an object was made for. It reports false if that is not known.
func MadeFor(o *unstructured.Unstructured) (Object, bool) {
	for _, r := range o.GetOwnerReferences() {
		if OwnGroup(r.APIVersion) {
			return Object{strings.TrimPrefix(r.Kind, "Compiled"), r.Name}, true
		}
	}
	labels := o.GetLabels()
	if o.GetKind() == "Deployment" {
		labels, _, _ = unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	}
	kind := components[labels[labelPrefix+"component"]]
	name := labels[labelPrefix+"instance"]
	return Object{kind, name}, labels[labelManagedBy] == ManagedBy && kind != "" && name != ""
}

// Members says to which RootShards the objects of a namespace belong.
type Members map[Object][]string

// MembersOf follows the references of objects to their RootShards.
func MembersOf(all []unstructured.Unstructured) Members {
	m := Members{}
	for _, kind := range []string{kindRootShard, kindShard, kindFrontProxy, kindVirtualWorkspace, kindCacheServer,
		"Kubeconfig"} {
		for i := range all {
			if o := &all[i]; o.GetKind() == kind {
				m.add(o, all)
			}
		}
	}
	return m
}

func (m Members) add(o *unstructured.Unstructured, all []unstructured.Unstructured) {
	ref := func(path ...string) string {
		name, _, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, path...)...)
		return name
	}
	is := Object{o.GetKind(), o.GetName()}
	switch is.Kind {
	case kindRootShard:
		m.join(is, is.Name)
	case kindShard, kindFrontProxy:
		m.join(is, ref("rootShard", "ref", "name"))
	case kindCacheServer:
		for i := range all {
			if name, _, _ := unstructured.NestedString(all[i].Object, "spec", "cache", "ref", "name"); name == is.Name {
				m.join(is, m[Object{all[i].GetKind(), all[i].GetName()}]...)
			}
		}
	default:
		m.join(is, ref("target", "rootShardRef", "name"))
		m.join(is, m[Object{kindShard, ref("target", "shardRef", "name")}]...)
		m.join(is, m[Object{kindFrontProxy, ref("target", "frontProxyRef", "name")}]...)
	}
}

func (m Members) join(o Object, roots ...string) {
	for _, r := range roots {
		if r != "" && !slices.Contains(m[o], r) {
			m[o] = append(m[o], r)
		}
	}
}

// Only reports whether an object belongs to a RootShard, and to no other one.
func (m Members) Only(o Object, root string) bool { return slices.Equal(m[o], []string{root}) }

// Describe names an object of kcp-operator's APIs and its RootShards.
func Describe(o Object, roots []string) string {
	switch {
	case o.Kind == "" || o.Name == "":
		return "an unknown object of " + ManagedBy
	case len(roots) == 0:
		return o.String() + ", which does not exist or refers to no RootShard"
	case o.Kind == kindRootShard:
		return o.String()
	}
	return o.String() + " of RootShard " + strings.Join(roots, ", ")
}
