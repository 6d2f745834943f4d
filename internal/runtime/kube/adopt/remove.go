package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Remains is what kcp-operator has left of an installation in the namespace.
type Remains struct {
	// Servers are its Deployments.
	Servers []unstructured.Unstructured
	// Objects are the objects of its APIs.
	Objects []unstructured.Unstructured
	// Kept are Services that the setup has taken over. They would be deleted with the objects.
	Kept []unstructured.Unstructured
	// Authorities are the Secrets with the private keys of its authorities. Nothing deletes them.
	Authorities []string
	// Left are the objects of kcp-operator that are not changed, because they are not part of the installation or of
	// the setup.
	Left []string

	origin   operator.Origin
	applySet string
}

// Empty reports whether there is nothing to remove.
func (r *Remains) Empty() bool { return len(r.Servers)+len(r.Objects)+len(r.Kept) == 0 }

// Remains returns what kcp-operator has left of the installation that a setup has taken over, with its ApplySet. It
// fails if another RootShard uses a part of the installation, or if the setup does not serve all of its shards and
// front-proxies.
func (i *Installation) Remains(ctx context.Context, origin operator.Origin, applySet string) (*Remains, error) {
	all, members, err := i.from(ctx, origin)
	if err != nil {
		return nil, err
	}
	services, err := i.cl.List(ctx, kind.Service, "")
	if err != nil {
		return nil, err
	}
	out := &Remains{origin: origin, applySet: applySet}
	if err := i.sort(out, all, members, services); err != nil {
		return nil, err
	}
	for _, o := range services {
		if takenOver(&o, applySet) && len(own(&o)) > 0 && out.made(&o) {
			out.Kept = append(out.Kept, o)
		}
	}
	deployments, err := i.cl.List(ctx, kind.Deployment, "")
	if err != nil {
		return nil, err
	}
	out.Servers = slices.DeleteFunc(deployments, func(o unstructured.Unstructured) bool { return !out.made(&o) })
	out.Authorities, err = i.authorities(ctx, out.Objects)
	return out, err
}

// sort decides which objects are removed, and which are left.
func (i *Installation) sort(out *Remains, all []unstructured.Unstructured, members operator.Members,
	services []unstructured.Unstructured,
) error {
	var problems []error
	for _, o := range all {
		name := operator.Service(o.GetKind(), o.GetName())
		taken, roots := takenOver(find(services, name), out.applySet), members[id(o)]
		switch {
		case !slices.Contains(roots, out.origin.Name):
			out.leave(o, roots)
		case len(roots) > 1:
			problems = append(problems, fmt.Errorf("%s belongs to the RootShards %s", id(o), strings.Join(roots, ", ")))
		case served(o) && !taken:
			problems = append(problems, fmt.Errorf(
				"%s is not part of the setup: its Service %s does not lead to the setup's servers", id(o), name))
		case o.GetKind() == "VirtualWorkspace" && !taken:
			out.leave(o, nil)
		default:
			out.Objects = append(out.Objects, o)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed,
		"run kcpctl up first; if that changes nothing, add each Service to aliases of its component; "+
			"a shard that the setup does not have must be imported: kcpctl import --from-cluster",
		"%s has objects that cannot be removed, nothing was removed:\n%w", i.cl.Where(), errors.Join(problems...))
}

// leave notes an object that is not removed, and why.
func (r *Remains) leave(o unstructured.Unstructured, roots []string) {
	why := "not in the setup"
	if len(roots) > 0 {
		why = "of RootShard " + strings.Join(roots, ", ")
	}
	r.Left = append(r.Left, fmt.Sprintf("%s (%s)", id(o), why))
}

// served reports whether clients reach an object of kcp-operator's APIs at a Service, so that a setup without this
// Service does not replace it.
func served(o unstructured.Unstructured) bool {
	return slices.Contains([]string{"RootShard", "Shard", "FrontProxy"}, o.GetKind())
}

// takenOver reports whether a Service is one of a setup. It can be nil.
func takenOver(service *unstructured.Unstructured, applySet string) bool {
	return service != nil && service.GetLabels()[topology.LabelApplySet] == applySet
}

func find(all []unstructured.Unstructured, name string) *unstructured.Unstructured {
	for n := range all {
		if all[n].GetName() == name {
			return &all[n]
		}
	}
	return nil
}

// made reports whether kcp-operator has made an object for one of those that are removed.
func (r *Remains) made(o *unstructured.Unstructured) bool {
	for _, part := range r.Objects {
		is, known := operator.MadeFor(o)
		if known && is == id(part) {
			return true
		}
		if !known && o.GetKind() == "Deployment" && managed(o) && o.GetName() == operator.Service(part.GetKind(),
			part.GetName()) {
			return true
		}
	}
	return false
}

// managed reports whether the pods of a Deployment are kcp-operator's.
func managed(o *unstructured.Unstructured) bool {
	by, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels",
		"app.kubernetes.io/managed-by")
	return by == operator.ManagedBy
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

// StopServers deletes the Deployments of kcp-operator, front-proxies first, and waits until their pods are gone.
// Release comes first.
func (i *Installation) StopServers(ctx context.Context, r *Remains) error {
	for _, proxies := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(r.Servers),
			func(o unstructured.Unstructured) bool { return front(o) != proxies })
		err := parallel.Each(ctx, some, func(ctx context.Context, o unstructured.Unstructured) error {
			return i.cl.Delete(ctx, kind.Deployment, &o)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveObjects deletes the objects of kcp-operator's APIs, the RootShard last. The garbage collector then deletes what
// belongs to the objects. Release comes first: it removes their finalizers, which only a running kcp-operator would
// remove.
func (i *Installation) RemoveObjects(ctx context.Context, r *Remains) error {
	for _, api := range deletionOrder() {
		for _, o := range r.Objects {
			if o.GetKind() != api.Kind {
				continue
			}
			uid := o.GetUID()
			err := i.cl.Resource(resource(api)).Delete(ctx, o.GetName(),
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if err != nil && !apierrors.IsNotFound(err) {
				return i.cl.Explain(err, "delete %s %s", o.GetKind(), o.GetName())
			}
		}
	}
	return nil
}

// deletionOrder returns the APIs with the RootShard last: as long as it exists, it is known which installation is
// removed.
func deletionOrder() []operator.Resource {
	isRoot := func(r operator.Resource) bool { return r.Kind == "RootShard" }
	others := slices.DeleteFunc(slices.Clone(operator.Resources), isRoot)
	return append(others, operator.Resources[slices.IndexFunc(operator.Resources, isRoot)])
}

// patch changes the metadata of an object, unless the object has changed since it was read.
func (i *Installation) patch(
	ctx context.Context, client dynamic.ResourceInterface, o unstructured.Unstructured, metadata map[string]any,
) error {
	metadata["resourceVersion"] = o.GetResourceVersion()
	_, err := mergepatch.Send(ctx, client, object.FieldManager, o.GetName(), o.GetUID(),
		map[string]any{"metadata": metadata})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return clierr.New(clierr.Failed, "run the command again", "%s %s has changed meanwhile (%s)", o.GetKind(),
			o.GetName(), i.cl.Where())
	}
	return i.cl.Explain(err, "change %s %s", o.GetKind(), o.GetName())
}
