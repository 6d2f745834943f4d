package watch

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Version identifies the content of an object: it changes when another client changes the content, or replaces the
// object by another one of its name, but not with the status.
type Version struct {
	uid        types.UID
	generation int64
	resource   string
}

// VersionOf returns the version of an object. One without a generation, such as a ConfigMap, has no status either, so
// each change counts.
func VersionOf(u *unstructured.Unstructured) Version {
	v := Version{uid: u.GetUID(), generation: u.GetGeneration()}
	if v.generation == 0 {
		v.resource = u.GetResourceVersion()
	}
	return v
}
