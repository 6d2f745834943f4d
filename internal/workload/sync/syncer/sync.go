package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// sync makes the object in the physical cluster, and the status of the leaf, what they should be.
func (s *syncer) sync(ctx context.Context, i item) error {
	leaf, ok := s.up.Get(i.GroupVersionResource, i.Key)
	switch {
	case !ok:
		// An object without a leaf is an orphan, which sweep shows. A leaf that is deleted goes through remove.
		s.applied.Delete(i)
		return nil
	case leaf.GetDeletionTimestamp() != nil:
		return s.remove(ctx, i, leaf)
	case !slices.Contains(s.synced(), i.GroupVersionResource):
		return nil // what runs is not changed
	case s.member.blocked() != nil:
		s.member.waits.Store(true)
		return nil // the leaf comes back when that ends
	case !slices.Contains(leaf.GetFinalizers(), api.FinalizerSyncer):
		// The change comes back with the watch.
		return s.setFinalizers(ctx, i, leaf, append(slices.Clone(leaf.GetFinalizers()), api.FinalizerSyncer))
	case !s.lists(i.GroupVersionResource):
		return nil // the leaf comes back when it does
	}
	waits, err := s.unprotected(i, leaf)
	if waits && err == nil {
		return nil // what it waits for brings it back
	}
	var object *unstructured.Unstructured
	if err == nil {
		object, err = s.apply(ctx, i, leaf.Unstructured)
	}
	result, refused := outcomeOf(err)
	written := func() {}
	if err != nil {
		if !refused {
			return s.retrying(ctx, i, leaf, err)
		}
		s.queue.AddAfter(i, refusedInterval)
		object = s.present(i, leaf)
		if own := (*refusal)(nil); !errors.As(err, &own) {
			result, written = s.steady(i, leaf, result)
		}
	}
	if err := s.writeStatus(ctx, i, leaf, object, s.judged(i, result)); err != nil {
		return err
	}
	written()
	return nil
}

// apply applies a leaf to the physical cluster, if that can change something. It returns the object there.
func (s *syncer) apply(ctx context.Context, i item,
	leaf *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	desired, err := s.allowed(i, leaf)
	if err != nil {
		return nil, err
	}
	live, known := s.down.Get(i.GroupVersionResource,
		watch.Key{Namespace: desired.GetNamespace(), Name: desired.GetName()})
	version := "" // of the live object that desired was made for
	if known && splitter.KeepReplicas(leaf, desired, live.Unstructured) {
		version = live.GetResourceVersion()
	}
	hash := hashOf(desired.Object)
	last := s.last(i)
	if known && last.hash == hash && last.version == watch.VersionOf(live.Unstructured) {
		if last.stays(s.Now()) {
			s.applied.Store(i, applied{hash: hash, version: last.version})
		}
		return live.Unstructured, nil
	}
	corrects := last.hash == hash // the leaf has not changed
	if wait := last.wait(s.Now()); corrects && wait > 0 {
		s.queue.AddAfter(i, wait)
		return live.Unstructured, nil
	}
	if err := s.namespacer.ensure(ctx, i); err != nil {
		return nil, err
	}
	if err := errors.Join(s.tenancy.prepare(ctx, i), s.afterAccount(ctx, desired)); err != nil {
		return nil, err
	}
	if !known || live.GetAnnotations()[annotationLeaf] != i.Key.String() {
		found, err := s.claim(ctx, i, desired)
		if err != nil {
			return nil, err
		}
		if found != nil && splitter.KeepReplicas(leaf, desired, found) {
			version, hash = found.GetResourceVersion(), hashOf(desired.Object)
		}
	}
	if err := s.keepNodes(ctx, i, leaf, desired); err != nil {
		return nil, err
	}
	var managers []string
	if corrects && last.corrections >= contendedAfter-1 { // the next correction makes it contended
		managers = s.rivals(ctx, i.GroupVersionResource, desired)
	}
	desired.SetResourceVersion(version)
	object, err := s.write(ctx, i.GroupVersionResource, desired)
	if err != nil {
		return nil, err
	}
	s.observe(Down, i)
	// Other clients may set fields that the leaf does not have.
	if v := watch.VersionOf(object); corrects && v != last.version &&
		(!known || v != watch.VersionOf(live.Unstructured)) {
		last.correct(managers, s.Now())
		s.queue.AddAfter(i, contendedFor)
	}
	last.hash, last.version = hash, watch.VersionOf(object)
	s.applied.Store(i, last)
	return object, nil
}

// keepNodes gives a Job or a pod that there is the node selector that it has there, if that has what the user selects:
// API servers do not permit another one, such as when the Cluster has got one.
func (s *syncer) keepNodes(ctx context.Context, i item, leaf, desired *unstructured.Unstructured) error {
	pod := kinds.PodSpec(desired)
	if pod == nil || !slices.Contains([]string{"Job", "Pod"}, desired.GetKind()) {
		return nil
	}
	live, err := s.read(ctx, i.GroupVersionResource, desired.GetNamespace(), desired.GetName())
	if live == nil {
		return err
	}
	selected, _ := kinds.PodSpec(leaf)["nodeSelector"].(map[string]any)
	has, _ := kinds.PodSpec(live)["nodeSelector"].(map[string]any)
	for label, value := range selected {
		if has[label] != value {
			return nil // the cluster says that this cannot change
		}
	}
	if delete(pod, "nodeSelector"); len(has) > 0 {
		pod["nodeSelector"] = has
	}
	return nil
}

// refusal means that the leaf cannot be in the physical cluster as it is there now, such as when another object has the
// name.
type refusal struct{ reason, message string }

func (e *refusal) Error() string { return e.message }

// claim returns the object that the physical cluster has under the name, if there is one. It fails if that is not this
// leaf's. An object of an administrator is not touched: only objects that each namespace has by itself, or that a
// syncer made of the same root, are taken over.
func (s *syncer) claim(ctx context.Context, i item,
	desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := s.read(ctx, i.GroupVersionResource, desired.GetNamespace(), desired.GetName())
	if live == nil {
		return nil, err
	}
	refuse := func(format string, args ...any) (*unstructured.Unstructured, error) {
		return nil, &refusal{api.ReasonNameCollision, fmt.Sprintf("%s %s/%s of cluster %s ", desired.GetKind(),
			desired.GetNamespace(), desired.GetName(), s.Cluster) +
			fmt.Sprintf(format, args...)}
	}
	of := live.GetAnnotations()[annotationLeaf]
	leaf, isLeaf := parseLeaf(of)
	switch {
	case of == i.Key.String():
		return live, nil
	case of != "" && isLeaf && s.isEarlier(leaf, i.Key, live):
		return live, nil
	case of != "":
		return refuse("stands for %s: rename or delete one of them", of)
	case kinds.IsEverywhere(i.GroupResource(), desired.GetName()), live.GetLabels()[api.LabelSetup] == s.Setup:
		return live, nil
	}
	by := cmp.Or(live.GetLabels()[api.LabelManagedBy], "another client")
	return refuse("was created by %s in the cluster: rename the object in the workspace, or delete the one "+
		"in the cluster", by)
}

// isEarlier reports whether an object was made of the same root, when the cluster was registered under another name: a
// cluster has one syncer at a time, and it is this one.
func (s *syncer) isEarlier(was, is watch.Key, live *unstructured.Unstructured) bool {
	name := live.GetLabels()[api.LabelCluster]
	return live.GetLabels()[api.LabelSetup] == s.Setup && name != "" && name != s.Cluster &&
		was.Cluster == is.Cluster && was.Namespace == is.Namespace &&
		was.Name == api.LeafName(live.GetName(), name)
}

// outcomeOf returns the condition for an error of apply, and whether the cluster refuses the leaf: another attempt
// helps only if the leaf, or something in the cluster, has changed.
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

// isDenied reports whether a webhook or a ValidatingAdmissionPolicy denies an object. If these give no reason, API
// servers give such an error the reason BadRequest or Invalid. See kubernetes:
// staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go and
// plugin/policy/validating/dispatcher.go.
func isDenied(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) &&
		(strings.Contains(status.Status().Message, "denied the request") ||
			strings.Contains(status.Status().Message, "denied request: "))
}

// afterAccount fails while the ServiceAccount of a Secret with a token is not in the cluster: the cluster deletes such
// a Secret.
func (s *syncer) afterAccount(ctx context.Context, desired *unstructured.Unstructured) error {
	account := splitter.TokenOf(desired)
	if account == "" {
		return nil
	}
	accounts := corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	live, err := s.read(ctx, accounts, desired.GetNamespace(), account)
	if live == nil && err == nil {
		return fmt.Errorf("namespace %s of cluster %s does not have ServiceAccount %s, for which Secret %s has a "+
			"token: create it in the workspace", desired.GetNamespace(), s.Cluster, account, desired.GetName())
	}
	return err
}
