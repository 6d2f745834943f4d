package controller

import (
	"context"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
)

// policy is an admission policy, or its binding, that was written.
type policy struct {
	want *unstructured.Unstructured
	// generation is the generation of the object as it was written.
	generation int64
}

// policies are the admission policies that protect the objects of the exported APIs.
type policies struct {
	*workspace
	// user is the user of the controller, as admission policies see it. Empty: it is not known.
	user guard.User
	// exported are the APIs.
	exported []schema.GroupResource
	// written are the policies that were written, by kind and name.
	written map[string]policy
}

// guardResources are the resources of the policies and their bindings.
func guardResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{guard.Policies(), guard.Bindings()}
}

// protect writes the policies that protect the objects of the exported APIs.
func (p *policies) protect(ctx context.Context, clusters []*api.Cluster, exported []schema.GroupResource) error {
	p.exported = exported
	clear(p.written)
	return p.keep(ctx, clusters)
}

// keep writes the policies that are other ones than before, because the clusters are, and those that were
// deleted, or changed, since they were written. They are watched, so that it needs no requests if there are none.
func (p *policies) keep(ctx context.Context, clusters []*api.Cluster) error {
	for _, want := range p.wanted(clusters) {
		r, key := guard.Resource(want), want.GetKind()+" "+want.GetName()
		last, live := p.written[key], p.object(r, "", want.GetName())
		if last.want != nil && reflect.DeepEqual(last.want.Object, want.Object) && live != nil &&
			live.GetGeneration() <= last.generation {
			continue
		}
		written, err := p.apply(ctx, r, want)
		if err != nil {
			return err
		}
		p.written[key] = policy{want, written.GetGeneration()}
	}
	return nil
}

// wanted returns the policies. Without its own user, the controller could not schedule to clusters that users may not
// use by a label.
func (p *policies) wanted(clusters []*api.Cluster) []*unstructured.Unstructured {
	all := guard.Objects(p.exported)
	if p.user.Name == "" {
		return all
	}
	return slices.Concat(all, guard.Placement(p.exported, guard.Open(clusters), p.user),
		guard.Members(p.exported, p.user))
}
