package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/guard"
)

// policyObject is an admission policy, or its binding, that protects the objects of the exported APIs.
type policyObject struct {
	want *unstructured.Unstructured
	// generation is that of the object as it was written.
	generation int64
}

// guardResources are the resources of the policies and their bindings.
func guardResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{guard.Policies(), guard.Bindings()}
}

// protect writes the policies that protect the objects of the exported APIs.
func (c *controller) protect(ctx context.Context, exported []schema.GroupResource) error {
	c.policies = nil
	for _, o := range guard.Objects(exported) {
		c.policies = append(c.policies, policyObject{want: o})
	}
	return c.writePolicies(ctx, func(policyObject) bool { return true })
}

// keepPolicies writes the policies again that were deleted, or changed, since they were written. They are watched, so that it needs no
// requests if there are none.
func (c *controller) keepPolicies(ctx context.Context) error {
	return c.writePolicies(ctx, func(p policyObject) bool {
		live := c.object(guard.Resource(p.want), "", p.want.GetName())
		return live == nil || live.GetGeneration() > p.generation
	})
}

func (c *controller) writePolicies(ctx context.Context, due func(policyObject) bool) error {
	for i, p := range c.policies {
		if !due(p) {
			continue
		}
		written, err := c.write(ctx, guard.Resource(p.want), p.want)
		if err != nil {
			return err
		}
		c.policies[i].generation = written.GetGeneration()
	}
	return nil
}
