package controller

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
)

// policyObject is an admission policy, or its binding, that protects the objects of the exported APIs.
type policyObject struct {
	want *unstructured.Unstructured
	// generation is the generation of the object as it was written. Zero: it was not.
	generation int64
}

// guardResources are the resources of the policies and their bindings.
func guardResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{guard.Policies(), guard.Bindings()}
}

// protect writes the policies that protect the objects of the exported APIs.
func (c *controller) protect(ctx context.Context, clusters []*api.Cluster, exported []schema.GroupResource) error {
	c.exported = exported
	for i := range c.policies {
		c.policies[i].generation = 0
	}
	return c.keepPolicies(ctx, clusters)
}

// keepPolicies writes the policies that are other ones than before, because the clusters are, and those that were
// deleted, or changed, since they were written. They are watched, so that it needs no requests if there are none.
func (c *controller) keepPolicies(ctx context.Context, clusters []*api.Cluster) error {
	if of := fmt.Sprint(c.exported, guard.Open(clusters), c.user); of != c.policiesOf {
		c.compute(clusters)
		c.policiesOf = of
	}
	for i, p := range c.policies {
		live := c.object(guard.Resource(p.want), "", p.want.GetName())
		if p.generation > 0 && live != nil && live.GetGeneration() <= p.generation {
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

// compute computes the policies. Those that are other ones than before are to be written.
func (c *controller) compute(clusters []*api.Cluster) {
	before := map[string]policyObject{}
	for _, p := range c.policies {
		before[p.want.GetKind()+p.want.GetName()] = p
	}
	c.policies = nil
	for _, want := range c.wanted(clusters) {
		p := before[want.GetKind()+want.GetName()]
		if p.want == nil || !reflect.DeepEqual(p.want.Object, want.Object) {
			p = policyObject{want: want}
		}
		c.policies = append(c.policies, p)
	}
}

// wanted returns the policies. Without its own user, the controller could not schedule to clusters that users may not
// use by a label.
func (c *controller) wanted(clusters []*api.Cluster) []*unstructured.Unstructured {
	all := guard.Objects(c.exported)
	if c.user.Name == "" {
		return all
	}
	return append(all, guard.Placement(c.exported, guard.Open(clusters), c.user)...)
}
