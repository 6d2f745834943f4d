package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// Stopped fails while a kcp-operator that is known by its name runs on the cluster. Release finds the others.
func (i *Installation) Stopped(ctx context.Context) error {
	list, err := i.cl.Dynamic.Resource(kind.Deployment.GVR()).
		List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + operator.ManagedBy})
	if cluster.IsDenied(err) {
		return nil
	}
	if err != nil {
		return i.cl.Explain(err, "list deployments of all namespaces")
	}
	for _, o := range list.Items {
		if n, set, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); n > 0 || !set {
			return clierr.New(clierr.Failed,
				"stop it: "+i.cl.Kubectl(fmt.Sprintf("-n %s scale deployment %s --replicas=0", o.GetNamespace(),
					o.GetName())),
				"kcp-operator runs (Deployment/%s/%s); when its objects are deleted, it deletes the Shards from kcp",
				o.GetNamespace(), o.GetName())
		}
	}
	return nil
}

// Release takes from the objects what makes their deletion harmful: finalizers of kcp-operator, with which it would
// delete Shards and the permissions of kubeconfigs from kcp, and the owners of Services that the setup has taken over.
// It deletes nothing. A kcp-operator that runs anywhere, under whatever name, restores them: then Release fails.
func (i *Installation) Release(ctx context.Context, r *Remains) error {
	if err := i.Stopped(ctx); err != nil {
		return err
	}
	for _, o := range r.Kept {
		others := slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()),
			func(r metav1.OwnerReference) bool { return operator.OwnGroup(r.APIVersion) })
		if err := i.patch(ctx, i.cl.For(kind.Service), o,
			map[string]any{"ownerReferences": append([]metav1.OwnerReference{}, others...)}); err != nil {
			return err
		}
	}
	looked := i.now().UTC().Format(time.RFC3339)
	for _, api := range operator.Resources {
		for _, o := range r.Objects {
			if o.GetKind() != api.Kind {
				continue
			}
			// The annotation makes a running kcp-operator look at an object from which nothing is taken.
			change := map[string]any{"annotations": map[string]string{topology.AnnotationTakeOver: looked}}
			if own := slices.DeleteFunc(slices.Clone(o.GetFinalizers()),
				operator.OwnFinalizer); len(own) != len(o.GetFinalizers()) {
				change["finalizers"] = append([]string{}, own...)
			}
			if err := i.patch(ctx, i.cl.Resource(resource(api)), o, change); err != nil {
				return err
			}
		}
	}
	return i.staysReleased(ctx, r)
}

// staysReleased waits, and fails as soon as kcp-operator has restored something.
func (i *Installation) staysReleased(ctx context.Context, r *Remains) error {
	for range 10 {
		if err := poll.Pause(ctx, i.Settle/10); err != nil {
			return err
		}
		if err := i.refuseRestored(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// refuseRestored fails if an object has a finalizer or an owner of kcp-operator again.
func (i *Installation) refuseRestored(ctx context.Context, r *Remains) error {
	all, _, err := i.from(ctx, r.origin)
	if err != nil {
		return err
	}
	services, err := i.cl.List(ctx, kind.Service, "")
	if err != nil {
		return err
	}
	var restored []string
	for _, part := range r.Objects {
		is := id(part)
		n := slices.IndexFunc(all, func(o unstructured.Unstructured) bool { return id(o) == is })
		if n >= 0 && slices.ContainsFunc(all[n].GetFinalizers(), operator.OwnFinalizer) {
			restored = append(restored, "the finalizer of "+is.String())
		}
		service := find(services, operator.Service(is.Kind, is.Name))
		if takenOver(service, r.applySet) && len(own(service)) > 0 {
			restored = append(restored, "the owner of Service "+service.GetName())
		}
	}
	if len(restored) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed,
		"find its Deployment, on this cluster or on another one, scale it to 0, and run the command again",
		"a kcp-operator runs: it has restored %s (%s); when its objects are deleted, it deletes the Shards from kcp; "+
			"nothing was removed",
		strings.Join(restored, ", "), i.cl.Where())
}

// own returns the owners of an object that are kcp-operator's.
func own(o *unstructured.Unstructured) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()),
		func(r metav1.OwnerReference) bool { return !operator.OwnGroup(r.APIVersion) })
}
