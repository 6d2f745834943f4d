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

// policies are the admission policies that protect the objects of the exported APIs.
type policies struct {
	*workspace
	// user is the user of the controller, as admission policies see it. Empty: it is not known.
	user guard.User
	// exported are the APIs, and all has their policies. They were computed for the clusters and APIs in computed.
	exported []schema.GroupResource
	all      []policyObject
	computed string
}

// guardResources are the resources of the policies and their bindings.
func guardResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{guard.Policies(), guard.Bindings()}
}

// protect writes the policies that protect the objects of the exported APIs.
func (p *policies) protect(ctx context.Context, clusters []*api.Cluster, exported []schema.GroupResource) error {
	p.exported = exported
	for i := range p.all {
		p.all[i].generation = 0
	}
	return p.keep(ctx, clusters)
}

// keep writes the policies that are other ones than before, because the clusters are, and those that were
// deleted, or changed, since they were written. They are watched, so that it needs no requests if there are none.
func (p *policies) keep(ctx context.Context, clusters []*api.Cluster) error {
	if of := fmt.Sprint(p.exported, guard.Open(clusters), p.user); of != p.computed {
		p.compute(clusters)
		p.computed = of
	}
	for i, o := range p.all {
		live := p.object(guard.Resource(o.want), "", o.want.GetName())
		if o.generation > 0 && live != nil && live.GetGeneration() <= o.generation {
			continue
		}
		written, err := p.apply(ctx, guard.Resource(o.want), o.want)
		if err != nil {
			return err
		}
		p.all[i].generation = written.GetGeneration()
	}
	return nil
}

// compute computes the policies. Those that are other ones than before are to be written.
func (p *policies) compute(clusters []*api.Cluster) {
	before := map[string]policyObject{}
	for _, o := range p.all {
		before[o.want.GetKind()+o.want.GetName()] = o
	}
	p.all = nil
	for _, want := range p.wanted(clusters) {
		o := before[want.GetKind()+want.GetName()]
		if o.want == nil || !reflect.DeepEqual(o.want.Object, want.Object) {
			o = policyObject{want: want}
		}
		p.all = append(p.all, o)
	}
}

// wanted returns the policies. Without its own user, the controller could not schedule to clusters that users may not
// use by a label.
func (p *policies) wanted(clusters []*api.Cluster) []*unstructured.Unstructured {
	all := guard.Objects(p.exported)
	if p.user.Name == "" {
		return all
	}
	return append(all, guard.Placement(p.exported, guard.Open(clusters), p.user)...)
}
