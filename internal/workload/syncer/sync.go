package syncer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/kinds"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// applied is what the syncer has applied.
type applied struct {
	// hash is that of the object that was sent, and version that of the answer.
	hash    uint64
	version watch.Version
}

// sync makes the object in the physical cluster, and the status of the leaf, what they should be.
func (s *syncer) sync(ctx context.Context, i item) error {
	leaf, ok := s.up.Get(i.GroupVersionResource, i.Key)
	ending := false
	if !ok {
		leaf, ending = s.ending.Get(i.GroupVersionResource, i.Key)
	}
	switch {
	case ending && leaf.GetDeletionTimestamp() == nil:
		return nil // the API is not synced: what runs stays as it is
	case ending:
		return s.end(ctx, i, leaf)
	case !ok:
		// An object without a leaf is an orphan, with the care that sweep takes. A leaf that is deleted goes through remove.
		s.mu.Lock()
		delete(s.applied, i)
		s.mu.Unlock()
		return nil
	case leaf.GetDeletionTimestamp() != nil:
		return s.remove(ctx, i, leaf)
	case s.blocked() != nil:
		return nil // the leaf comes back when that ends
	case !slices.Contains(leaf.GetFinalizers(), api.FinalizerSyncer):
		// The change comes back with the watch.
		return s.setFinalizers(ctx, i, leaf, append(slices.Clone(leaf.GetFinalizers()), api.FinalizerSyncer))
	case !s.lists(i.GroupVersionResource) || !s.guards.ready():
		return nil // the leaf comes back when it does
	}
	object, err := s.apply(ctx, i, leaf.Unstructured)
	result, refused := outcomeOf(err)
	if err != nil {
		if !refused {
			return s.retrying(ctx, i, leaf, err)
		}
		s.queue.AddAfter(i, refusedInterval)
		object = s.present(i, leaf)
	}
	return s.writeStatus(ctx, i, leaf, object, s.judged(i, result))
}

// apply applies a leaf to the physical cluster, if that can change something. It returns the object there.
func (s *syncer) apply(ctx context.Context, i item, leaf *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	desired, err := s.allowed(i, leaf)
	if err != nil {
		return nil, err
	}
	live, known := s.down.Get(i.GroupVersionResource, watch.Key{Namespace: desired.GetNamespace(), Name: desired.GetName()})
	scaled := known && splitter.KeepReplicas(leaf, desired, live.Unstructured)
	hash := hashOf(desired)
	s.mu.Lock()
	last := s.applied[i]
	s.mu.Unlock()
	if known && last == (applied{hash, watch.VersionOf(live.Unstructured)}) {
		s.contention.stays(i, s.Now())
		return live.Unstructured, nil
	}
	if last.hash == hash && s.holdsBack(ctx, i, desired) {
		return live.Unstructured, nil
	}
	if err := s.ensureNamespace(ctx, i); err != nil {
		return nil, err
	}
	if err := s.confine(ctx, i); err != nil {
		return nil, err
	}
	client, err := s.below(i.GroupVersionResource, desired.GetNamespace())
	if err != nil {
		return nil, err
	}
	if !known || live.GetAnnotations()[annotationLeaf] != i.Key.String() {
		if err := s.claim(ctx, client, i, desired); err != nil {
			return nil, err
		}
	}
	if scaled {
		desired.SetResourceVersion(live.GetResourceVersion())
	}
	object, err := client.Apply(ctx, desired.GetName(), desired, metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	if err != nil {
		return nil, fmt.Errorf("apply %s %s/%s to cluster %s: %w", i.GroupResource(), desired.GetNamespace(), desired.GetName(), s.Cluster, err)
	}
	s.observe(Down, i)
	if last.hash == hash {
		s.corrected(i, last.version, live.Unstructured, object)
	}
	s.mu.Lock()
	s.applied[i] = applied{hash, watch.VersionOf(object)}
	s.mu.Unlock()
	return object, nil
}

// hashOf returns a hash of an object, never 0.
func hashOf(o *unstructured.Unstructured) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(o.Object) // JSON values, in the order of their keys
	return h.Sum64() | 1
}

// refusal means that the leaf cannot be in the physical cluster as it is there now, such as when another object has the name.
type refusal struct{ reason, message string }

func (e *refusal) Error() string { return e.message }

// claim fails if the physical cluster has an object under the name that is not this leaf's. An object of an administrator is not touched: only
// what each namespace has by itself, and what a syncer made of the same root, are taken over.
func (s *syncer) claim(ctx context.Context, client dynamic.ResourceInterface, i item, desired *unstructured.Unstructured) error {
	live, err := client.Get(ctx, desired.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s of cluster %s: %w", desired.GetKind(), desired.GetNamespace(), desired.GetName(), s.Cluster, err)
	}
	refuse := func(format string, args ...any) error {
		return &refusal{api.ReasonNameCollision, fmt.Sprintf("%s %s/%s of cluster %s ", desired.GetKind(), desired.GetNamespace(), desired.GetName(), s.Cluster) +
			fmt.Sprintf(format, args...)}
	}
	of := live.GetAnnotations()[annotationLeaf]
	leaf, isLeaf := parseLeaf(of)
	switch {
	case of == i.Key.String():
		return nil
	case of != "" && isLeaf && s.isEarlier(leaf, i.Key, live):
		return nil
	case of != "":
		return refuse("stands for %s: rename or delete one of them", of)
	case kinds.IsEverywhere(i.GroupResource(), desired.GetName()), live.GetLabels()[api.LabelSetup] == s.Setup:
		return nil
	}
	by := cmp.Or(live.GetLabels()[api.LabelManagedBy], "another client")
	return refuse("was created by %s in the cluster: rename the object in the workspace, or delete the one in the cluster", by)
}

// isEarlier reports whether an object was made of the same root, when the cluster was registered under another name: a cluster has one syncer at
// a time, and it is this one.
func (s *syncer) isEarlier(was, is watch.Key, live *unstructured.Unstructured) bool {
	name := live.GetLabels()[api.LabelCluster]
	return live.GetLabels()[api.LabelSetup] == s.Setup && name != "" && name != s.Cluster && was.Cluster == is.Cluster && was.Namespace == is.Namespace &&
		was.Name == api.LeafName(live.GetName(), name)
}

// outcomeOf returns the condition for an error of apply, and whether the cluster refuses the leaf: another attempt helps only if the leaf, or
// something in the cluster, has changed.
func outcomeOf(err error) (o outcome, refused bool) {
	var r *refusal
	switch {
	case err == nil:
		return synced(), false
	case errors.As(err, &r):
		return outcome{r.reason, r.message}, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "status unknown for quota"):
		return outcome{}, false // the cluster has not yet counted what a new ResourceQuota limits
	case isDenied(err):
		return outcome{api.ReasonDenied, err.Error()}, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return outcome{api.ReasonInvalid, err.Error()}, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return outcome{api.ReasonQuotaExceeded, err.Error()}, true
	case apierrors.IsForbidden(err):
		return outcome{api.ReasonDenied, err.Error()}, true
	}
	return outcome{}, false
}

// isDenied reports whether a webhook or a ValidatingAdmissionPolicy denies an object. Without a reason of their own, API servers give such an
// error the reason BadRequest or Invalid. See kubernetes: staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go and
// plugin/policy/validating/dispatcher.go.
func isDenied(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) &&
		(strings.Contains(status.Status().Message, "denied the request") || strings.Contains(status.Status().Message, "denied request: "))
}

// writeStatus writes the status of a leaf, if it changes.
func (s *syncer) writeStatus(ctx context.Context, i item, leaf watch.Object, object *unstructured.Unstructured, o outcome) error {
	if slices.Contains(api.Dependencies(), i.GroupVersionResource) {
		return s.annotate(ctx, i, leaf, o)
	}
	present, _, _ := unstructured.NestedMap(leaf.Object, "status")
	gk, now := leaf.GroupVersionKind().GroupKind(), s.Now()
	status := statusOf(leaf.Unstructured, object, o, now)
	s.dropped.Strip(gk, i.Cluster, status, now)
	if !s.dropped.HasConditions(gk, i.Cluster, now) {
		delete(status, "conditions")
		if err := s.annotate(ctx, i, leaf, o); err != nil {
			return err
		}
	}
	patch := api.MergePatch(present, status)
	if len(patch) == 0 {
		return nil
	}
	live, err := s.patch(ctx, i, leaf, map[string]any{"status": patch}, "status")
	if err == nil {
		s.observe(Up, i)
		if s.dropped.Learn(gk, i.Cluster, patch, live, now) {
			s.queue.Add(i) // an annotation has the outcome instead
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		// The API has no status, or its conditions are of another type.
		return s.annotate(ctx, i, leaf, o)
	}
	return err
}

// annotate writes the outcome to a leaf that has no status.
func (s *syncer) annotate(ctx context.Context, i item, leaf watch.Object, o outcome) error {
	want := map[string]any{api.AnnotationSyncError: nil}
	if o.reason != api.ReasonSynced {
		want[api.AnnotationSyncError] = o.reason + ": " + o.message
	} else if kinds.IsFirst(i.GroupResource(), name(leaf.Unstructured)) {
		want[api.AnnotationSynced] = strconv.FormatInt(leaf.GetGeneration(), 10)
	}
	for key, value := range want {
		if have, ok := leaf.GetAnnotations()[key]; ok == (value != nil) && (!ok || have == value) {
			delete(want, key)
		}
	}
	if len(want) == 0 {
		return nil
	}
	_, err := s.patch(ctx, i, leaf, map[string]any{"metadata": map[string]any{"annotations": want}})
	if apierrors.IsNotFound(err) {
		return nil // the leaf is gone
	}
	return err
}

// errOutdated means that a leaf has changed since it was read: the watch brings it soon.
var errOutdated = errors.New("the leaf has changed")

// setFinalizers sets the finalizers of a leaf, unless it has changed since it was read.
func (s *syncer) setFinalizers(ctx context.Context, i item, leaf watch.Object, all []string) error {
	_, err := s.patch(ctx, i, leaf, map[string]any{"metadata": map[string]any{
		"finalizers": all, "resourceVersion": leaf.GetResourceVersion(), "uid": string(leaf.GetUID()),
	}})
	if apierrors.IsConflict(err) {
		return errors.Join(errOutdated, err)
	}
	return err
}

// patch sends a merge patch for a leaf to the endpoint that serves it.
func (s *syncer) patch(
	ctx context.Context, i item, leaf watch.Object, patch map[string]any, subresources ...string,
) (*unstructured.Unstructured, error) {
	client, err := s.up.Resource(leaf.Endpoint, i.Cluster, i.GroupVersionResource)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch %s %s: %w", i.GroupResource(), i.Key, err)
	}
	live, err := client.Namespace(i.Namespace).Patch(ctx, i.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerSyncer}, subresources...)
	if err != nil {
		return nil, fmt.Errorf("patch %s %s in kcp: %w", i.GroupResource(), i.Key, err)
	}
	return live, nil
}

// below returns a client for a resource of the physical cluster.
func (s *syncer) below(r schema.GroupVersionResource, namespace string) (dynamic.ResourceInterface, error) {
	client, err := s.down.Resource(s.physicalURL(), "", r)
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return client, nil
	}
	return client.Namespace(namespace), nil
}
