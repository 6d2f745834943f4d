package record

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// ReleaseOf returns the release that a component writes its data with: the release of kcp, which the setup file says
// also for an image with a digest, or the tag of the image of an etcd.
func ReleaseOf(c *topology.Component, o *unstructured.Unstructured) string {
	if c.Kind == topology.Etcd {
		return ImageTag(o)
	}
	return c.Version
}

// ImageTag returns the tag of the image that a workload runs; empty if there is no tag.
func ImageTag(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers[:min(1, len(containers))] {
		m, _ := c.(map[string]any)
		image := fmt.Sprint(m["image"])
		if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") && !strings.Contains(image, "@") {
			return image[at+1:]
		}
	}
	return ""
}
