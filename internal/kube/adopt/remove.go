package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/kind"
	"github.com/kcpctl/kcpctl/internal/operator"
	"github.com/kcpctl/kcpctl/internal/parallel"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Remains is what kcp-operator has left in the namespace.
type Remains struct {
	// Servers are its Deployments.
	Servers []unstructured.Unstructured
	// Objects are those of its APIs.
	Objects []unstructured.Unstructured
	// Kept are Services that kcpctl has taken over. They would be deleted with the objects.
	Kept []unstructured.Unstructured
	// Authorities are the Secrets with the private keys of its authorities. Nothing deletes them.
	Authorities []string
}

// Empty reports whether there is nothing to remove.
func (r *Remains) Empty() bool { return len(r.Servers)+len(r.Objects)+len(r.Kept) == 0 }

// Remains returns what kcp-operator has left in the namespace. It fails while a kcp-operator runs.
func (i *Installation) Remains(ctx context.Context) (*Remains, error) {
	ctx = cluster.Quiet(ctx)
	out := &Remains{}
	var err error
	if out.Objects, err = i.all(ctx); err != nil {
		return nil, err
	}
	if err := i.stopped(ctx); err != nil {
		return nil, err
	}
	deployments, err := i.cl.List(ctx, kind.Deployment, "")
	if err != nil {
		return nil, err
	}
	out.Servers = slices.DeleteFunc(deployments, func(o unstructured.Unstructured) bool { return !server(o) })
	services, err := i.cl.List(ctx, kind.Service, topology.LabelApplySet)
	if err != nil {
		return nil, err
	}
	out.Kept = slices.DeleteFunc(services, func(o unstructured.Unstructured) bool { return !owned(o) })
	out.Authorities, err = i.authorities(ctx, out.Objects)
	return out, err
}

// stopped fails while a kcp-operator runs on the cluster. It would change everything back. While its objects are deleted, it
// would also delete Shards and the permissions of kubeconfigs from kcp. It is not found if the user may not list the
// Deployments of all namespaces.
func (i *Installation) stopped(ctx context.Context) error {
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
				"stop it: "+i.cl.Kubectl(fmt.Sprintf("-n %s scale deployment %s --replicas=0", o.GetNamespace(), o.GetName())),
				"kcp-operator runs (Deployment/%s/%s); when its objects are deleted, it deletes the Shards from kcp",
				o.GetNamespace(), o.GetName())
		}
	}
	return nil
}

func (i *Installation) authorities(ctx context.Context, objects []unstructured.Unstructured) ([]string, error) {
	var out []string
	for _, o := range objects {
		if o.GetKind() != "RootShard" {
			continue
		}
		for _, name := range operator.KeySecrets(o.GetName()) {
			secret, err := i.cl.Secret(ctx, name)
			if err != nil {
				return nil, err
			}
			if secret != nil {
				out = append(out, name)
			}
		}
	}
	return out, nil
}

// StopServers deletes the Deployments of kcp-operator, front-proxies first, and waits until their pods are gone. Before
// that, it releases the Services of kcpctl that belong to kcp-operator's objects.
func (i *Installation) StopServers(ctx context.Context, r *Remains) error {
	ctx = cluster.Quiet(ctx)
	for _, o := range r.Kept {
		if err := i.release(ctx, o); err != nil {
			return err
		}
	}
	for _, proxies := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(r.Servers), func(o unstructured.Unstructured) bool { return front(o) != proxies })
		err := parallel.Each(ctx, some, func(ctx context.Context, o unstructured.Unstructured) error {
			return i.cl.Delete(ctx, kind.Deployment, &o)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// release removes those owners of an object that are kcp-operator's.
func (i *Installation) release(ctx context.Context, o unstructured.Unstructured) error {
	others := []metav1.OwnerReference{}
	for _, r := range o.GetOwnerReferences() {
		if !operator.OwnGroup(r.APIVersion) {
			others = append(others, r)
		}
	}
	return i.patch(ctx, i.cl.For(kind.Service), o, map[string]any{"ownerReferences": others})
}

// RemoveObjects deletes the objects of kcp-operator's APIs, without their finalizers: only a running kcp-operator would
// remove these. The garbage collector then deletes what belongs to the objects.
func (i *Installation) RemoveObjects(ctx context.Context, r *Remains) error {
	ctx = cluster.Quiet(ctx)
	for _, api := range operator.Resources {
		client := i.cl.Resource(resource(api))
		for _, o := range r.Objects {
			if o.GetKind() != api.Kind {
				continue
			}
			if err := i.remove(ctx, client, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *Installation) remove(ctx context.Context, client dynamic.ResourceInterface, o unstructured.Unstructured) error {
	finalizers := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), operator.OwnFinalizer)
	if len(finalizers) != len(o.GetFinalizers()) {
		if err := i.patch(ctx, client, o, map[string]any{"finalizers": finalizers}); err != nil {
			return err
		}
	}
	uid := o.GetUID()
	err := client.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return i.cl.Explain(err, "delete %s %s", o.GetKind(), o.GetName())
}

// patch changes the metadata of an object, unless the object has changed since it was read.
func (i *Installation) patch(
	ctx context.Context, client dynamic.ResourceInterface, o unstructured.Unstructured, metadata map[string]any,
) error {
	metadata["resourceVersion"] = o.GetResourceVersion()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, o.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return i.cl.Explain(err, "change %s %s", o.GetKind(), o.GetName())
}
