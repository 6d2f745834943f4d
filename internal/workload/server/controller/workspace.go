package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// workspace is the compute workspace.
type workspace struct {
	// path is the path of the workspace, url its URL, and cluster its logical cluster.
	path, url, cluster string
	client             dynamic.Interface
	metadata           metadata.Interface
	// accepted are the names of APIResourceSchemas that kcp accepts, see acceptedFor.
	accepted *cache.LRUExpireCache
	// set has the Clusters, Leases, Secrets, ConfigMaps, APIExports and admission policies.
	set *watch.Set
}

// connect returns the compute workspace. It creates the CRD of Cluster there, unless kcpctl up has, and reads which
// logical cluster it is.
func connect(ctx context.Context, o Options) (*workspace, error) {
	w := &workspace{path: o.Workspace, url: strings.TrimRight(o.KCP.Host, "/") + "/clusters/" + o.Workspace,
		accepted: cache.NewLRUExpireCache(mostAccepted)}
	cfg := rest.CopyConfig(o.KCP)
	cfg.Host = w.url
	cfg.QPS = -1
	var err error
	if w.client, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("client for %s: %w", w.url, err)
	}
	if w.metadata, err = metadata.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("client for %s: %w", w.url, err)
	}
	return w, w.prepare(ctx)
}

// Objects with this label belong to a setup: kcpctl up applies them.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedByUp    = "kcpctl"
)

// prepare creates the CRD, and reads the logical cluster.
func (w *workspace) prepare(ctx context.Context) error {
	crd, err := api.CRD()
	if err != nil {
		return err
	}
	live, err := w.client.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil || live.GetLabels()[labelManagedBy] != managedByUp {
		live, err = w.client.Resource(crds).Apply(ctx, crd.GetName(), crd,
			metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	}
	switch {
	case apierrors.IsForbidden(err):
		return clierr.New(clierr.Failed,
			"create the workspace, and give the user of the kubeconfig the rights of a cluster administrator in it",
			"apply CustomResourceDefinition %s in workspace %s: %w", crd.GetName(), w.path, err)
	case err != nil:
		return fmt.Errorf("apply CustomResourceDefinition %s in workspace %s: %w", crd.GetName(), w.path, err)
	}
	// Names of logical clusters are random, except the name of root (kcp:
	// pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
	w.cluster = live.GetAnnotations()[kcpapi.AnnotationCluster]
	if w.cluster == "" {
		return clierr.New(clierr.BadInput, "specify a kubeconfig of kcp", "%s is not a workspace of kcp", w.url)
	}
	return nil
}

// reviews are requests for the user who sends them.
var reviews = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}

// whoAmI returns the user of the controller, as admission policies see it.
func (w *workspace) whoAmI(ctx context.Context) (user guard.User, _ error) {
	review := &unstructured.Unstructured{Object: map[string]any{}}
	review.SetGroupVersionKind(reviews.GroupVersion().WithKind("SelfSubjectReview"))
	review, err := w.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err == nil:
		user = guard.UserOf(review)
	case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
		return user, fmt.Errorf("ask kcp for the user of the kubeconfig, in workspace %s: %w", w.path, err)
	}
	if user.Name == "" {
		klog.FromContext(ctx).Info("kcp does not know the user of the kubeconfig: users can schedule objects to " +
			"clusters that they may not use")
	}
	return user, nil
}

func (w *workspace) object(r schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	if o, ok := w.set.Get(r, watch.Key{Cluster: w.cluster, Namespace: namespace, Name: name}); ok {
		return o.Unstructured
	}
	return nil
}

// same fails if the workspace is another one than when the controller started.
func (w *workspace) same() error {
	for _, k := range w.set.Keys(api.ClusterGVR(), "") {
		if k.Cluster != w.cluster {
			return clierr.New(clierr.Conflict, "start it again",
				"workspace %s was created again: it is the logical cluster %s, and was %s", w.path, k.Cluster,
				w.cluster)
		}
	}
	return nil
}

// apply applies an object, and returns it as it is then.
func (w *workspace) apply(ctx context.Context, r schema.GroupVersionResource,
	o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := w.client.Resource(r).Apply(ctx, o.GetName(), o,
		metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	if err != nil {
		return nil, fmt.Errorf("apply %s %s in workspace %s: %w", o.GetKind(), o.GetName(), w.path, err)
	}
	return out, nil
}

// patchStatus writes a status, with texts that are not too long. The watch brings it back.
func (w *workspace) patchStatus(ctx context.Context, cl *api.Cluster, status api.ClusterStatus) error {
	status = confined(status)
	patch, err := statusPatch(&cl.Status, &status)
	switch {
	case err != nil:
		return fmt.Errorf("status of Cluster %s: %w", cl.Name, err)
	case patch == nil:
		return nil
	case status.UID != cl.Status.UID:
		// It is set once, so it must not reach another Cluster of the same name.
		patch["metadata"] = map[string]any{"resourceVersion": cl.ResourceVersion}
	}
	written, err := mergepatch.Send(ctx, w.client.Resource(api.ClusterGVR()), api.ManagerController, cl.Name, cl.UID,
		patch, "status")
	if err != nil {
		return fmt.Errorf("status of Cluster %s: %w", cl.Name, err)
	}
	cl.Status = status
	if fresh, err := api.ClusterOf(written); err == nil {
		cl.ObjectMeta = fresh.ObjectMeta // for its next patch in this pass
	}
	return nil
}

// statusPatch returns what changes a status to another one, or nil if they are equal. A merge patch of the whole would
// keep resources of the capacity that the cluster no longer has, and each look would write it again.
func statusPatch(from, to *api.ClusterStatus) (map[string]any, error) {
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return nil, err
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(to)
	if err != nil {
		return nil, err
	}
	changes := api.MergePatch(was, is)
	if len(changes) == 0 {
		return nil, nil
	}
	return map[string]any{"status": changes}, nil
}

// maxMessage is the length of the longest message of a condition, in bytes: it can list several APIs.
// Kubernetes permits 32768.
const maxMessage = 8 << 10

// confined returns a status whose texts are not longer than a user can read. Others write them: they come from schemas,
// from the API servers of clusters, and from their syncers. The argument is not changed.
func confined(s api.ClusterStatus) api.ClusterStatus {
	s.Version = heartbeat.Cut(s.Version)
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].Message = heartbeat.CutTo(s.Conditions[i].Message, maxMessage)
	}
	s.APIs = slices.Clone(s.APIs)
	for i := range s.APIs {
		a := &s.APIs[i]
		a.Message = heartbeat.Cut(a.Message)
		if a.Accept != nil {
			lost := make([]string, 0, len(a.Accept.Lost))
			for _, text := range a.Accept.Lost {
				lost = append(lost, heartbeat.Cut(text))
			}
			a.Accept = &api.Acceptance{Value: a.Accept.Value, Lost: lost}
		}
	}
	return s
}
