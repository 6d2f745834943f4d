package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
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
	result, final := outcomeOf(err)
	written := func() {}
	if err != nil {
		if !final {
			return s.retrying(ctx, i, leaf, err)
		}
		s.queue.AddAfter(i, refused.Interval)
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

// Two clients that set the same field would correct each other as fast as they can. So the corrections of an object
// wait, longer each time, until one has stayed for contendedFor.
const (
	firstCorrection = time.Second
	lastCorrection  = 5 * time.Minute
	contendedFor    = time.Minute
	// contendedAfter is the number of corrections after which the object is contended, which its user sees.
	contendedAfter = 3
)

// An object that the cluster fails to accept, such as because a webhook does not answer, is reported after this many
// tries. The message can differ each time, and a written status brings the leaf back at once, so it is written again
// only after so many more.
const (
	reportedAfter = 3
	reportedEvery = 10
	// reportTimeout is how long the report may take. The time for the object itself can be over.
	reportTimeout = 10 * time.Second
)

// applied is what was applied for a leaf, and how often that was corrected. Only the worker that has the item uses it.
type applied struct {
	// hash is the hash of the object that was sent, and version the version of the answer.
	hash    uint64
	version watch.Version
	// corrections is the number of corrections none of which has stayed, and corrected the time of the last one.
	corrections int
	corrected   time.Time
	// managers are the field managers of other clients, before the last correction of a contended object.
	managers []string
	// refused is the hash of an object that the cluster refuses, and refusedAt when that was written to the leaf.
	refused   uint64
	refusedAt time.Time
}

func (a *applied) wait(now time.Time) time.Duration {
	if a.corrections == 0 {
		return 0
	}
	delay := min(lastCorrection, firstCorrection<<min(a.corrections-1, 10))
	return max(0, a.corrected.Add(delay).Sub(now))
}

func (a *applied) correct(managers []string, now time.Time) {
	a.corrections++
	a.corrected = now
	a.managers = managers
}

// stays reports whether the last correction has stayed for long enough. That ends the contention.
func (a *applied) stays(now time.Time) bool {
	return a.corrections > 0 && now.Sub(a.corrected) >= contendedFor
}

func (a *applied) contended() bool { return a.corrections >= contendedAfter }

// rivals returns the field managers of other clients that change an object, sorted. A correction takes their fields
// away, so this is read before. Managers of the status are ignored.
func (v *view) rivals(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured) []string {
	live, err := v.read(ctx, r, object.GetNamespace(), object.GetName())
	if err != nil || live == nil {
		return nil // the correction shows the error
	}
	var out []string
	for _, m := range live.GetManagedFields() {
		if m.Manager != api.ManagerSyncer && m.Subresource != "status" {
			out = append(out, m.Manager)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// judged returns the condition of a leaf whose object was accepted, or refused: a contended object is not synced.
func (s *syncer) judged(i item, o outcome) outcome {
	last := s.last(i)
	if !last.contended() || o.reason != api.ReasonSynced {
		return o
	}
	who := "another client of the cluster"
	if len(last.managers) > 0 {
		who = "field manager " + strings.Join(last.managers, ", ")
	}
	return outcome{api.ReasonContendedField, fmt.Sprintf(
		"%s changes the object in cluster %s repeatedly, so that corrections wait up to %s: "+
			"stop that client there, leave the fields that it sets out of the object, or, if it scales the object, "+
			"create a HorizontalPodAutoscaler in the workspace instead", who,
		s.Cluster, lastCorrection)}
}

// steady returns the outcome of a leaf that the cluster refuses: what the leaf says, if that is about the same object
// and has the same reason, and was written a short time ago. The message of an API server can differ each time, and a
// written status brings the leaf back at once. After the outcome was written, written must be called.
func (s *syncer) steady(i item, leaf watch.Object, o outcome) (_ outcome, written func()) {
	now := s.Now()
	hash := hashOf(s.transform(leaf.Unstructured).Object)
	has := outcomeIn(leaf.Unstructured)
	last := s.last(i)
	if has.reason == o.reason && last.refused == hash && now.Sub(last.refusedAt) < refused.Interval {
		return has, func() {}
	}
	return o, func() {
		last := s.last(i)
		last.refused = hash
		last.refusedAt = now
		s.applied.Store(i, last)
	}
}

// retrying reports an error after which a leaf is tried again, if it lasts. It returns the error.
func (s *syncer) retrying(ctx context.Context, i item, leaf watch.Object, cause error) error {
	tries := s.queue.NumRequeues(i) + 1
	again := outcomeIn(leaf.Unstructured).reason == api.ReasonRetrying && tries%reportedEvery != 0
	if tries < reportedAfter || again || errors.Is(ctx.Err(), context.Canceled) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	message := fmt.Sprintf("%v. It is tried again, at least every %s", cause, queue.LastRetry)
	err := s.writeStatus(ctx, i, leaf, s.present(i, leaf), outcome{api.ReasonRetrying, message})
	if apierrors.IsConflict(err) {
		return cause // the next attempt reports it
	}
	return errors.Join(cause, err)
}

// endInterval is the time between two looks at an object that is being deleted, and that is not watched.
const endInterval = 2 * time.Second

// remove deletes the object of a leaf that is being deleted, and removes the finalizer when the object is gone. No
// schema is needed for that.
func (s *syncer) remove(ctx context.Context, i item, leaf watch.Object) error {
	if !slices.Contains(leaf.GetFinalizers(), api.FinalizerSyncer) {
		return nil
	}
	if err := s.member.replaced(); err != nil {
		return err // the object is, or may be, in another cluster: a UID is not read or not recorded yet
	}
	namespace := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	live, err := s.read(ctx, i.GroupVersionResource, namespace, name(leaf.Unstructured))
	if err != nil {
		return err
	}
	ends := live != nil && live.GetAnnotations()[annotationLeaf] == i.Key.String() && !ofLater(live, leaf.Unstructured)
	if ends {
		needed, err := s.orphansNeed(ctx, i.GroupVersionResource, namespace)
		if err != nil {
			return err
		}
		ends = !needed
	}
	if ends {
		// The end of the object comes with the watch, if there is one, and brings the leaf back here.
		if !slices.Contains(s.synced(), i.GroupVersionResource) {
			s.queue.AddAfter(i, endInterval)
		}
		return s.delete(ctx, i.GroupVersionResource, live)
	}
	if err := s.namespacer.remove(ctx, i); err != nil {
		return err
	}
	s.applied.Delete(i)
	rest := slices.DeleteFunc(slices.Clone(leaf.GetFinalizers()),
		func(f string) bool { return f == api.FinalizerSyncer })
	err = s.setFinalizers(ctx, i, leaf, rest)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ofLater reports whether an object was made of a leaf of the same name that kcp has created later, such as before a
// backup was restored in which this one is being deleted. No user has deleted that leaf: without it, the object is an
// orphan. An object of an earlier leaf ends with this one, which would have replaced it. So does one of an earlier
// release, which does not say of which leaf it was made.
func ofLater(object, leaf *unstructured.Unstructured) bool {
	uid, at := object.GetAnnotations()[annotationUID], object.GetAnnotations()[annotationCreated]
	if uid == "" || uid == string(leaf.GetUID()) {
		return false
	}
	created, err := time.Parse(time.RFC3339, at)
	return err != nil || !created.Before(leaf.GetCreationTimestamp().Time)
}

// orphansNeed reports whether an object is kept though its leaf ends: it restricts the connections of the pods in its
// namespace, or they can need it, and all workloads there are orphans, which the controller does not know.
func (s *syncer) orphansNeed(ctx context.Context, r schema.GroupVersionResource, namespace string) (bool, error) {
	k, _ := kinds.OfResource(r.GroupResource())
	if k.Spread != kinds.Follow || k.Data == kinds.AlwaysData || k.TargetPath != nil { // no pod needs an autoscaler
		return false, nil
	}
	orphans := false
	for _, r := range s.synced() {
		if k, _ := kinds.OfResource(r.GroupResource()); k.Template == nil {
			continue
		}
		for _, live := range s.down.In(r, "", namespace) {
			leaf, ok := leafOf(live.Unstructured)
			if ok && s.wanted(r, leaf, live.GetName()) {
				return false, nil
			}
			if !ok || orphans {
				continue
			}
			now, err := s.read(ctx, r, namespace, live.GetName()) // the watch can still show one that is gone
			if err != nil {
				return false, err
			}
			orphans = now != nil
		}
	}
	if orphans && !s.complete(s.known()) {
		return false, fmt.Errorf("whether the workloads in namespace %s of cluster %s have leaves is not known yet",
			namespace, s.Cluster)
	}
	return orphans, nil
}

// unlistedInterval is the time until a workload is tried again while what protects its pods is not listed.
const unlistedInterval = 500 * time.Millisecond

// unprotected reports whether a leaf would bring the first pods of a workload to the cluster before something that must
// exist there before them, such as a NetworkPolicy that selects them. Such a leaf waits. The error is set if the
// cluster cannot have what it waits for.
func (s *syncer) unprotected(i item, leaf watch.Object) (waits bool, _ error) {
	if !hasPods(i.GroupVersionResource) || s.present(i, leaf) != nil {
		return false, nil
	}
	first := slices.DeleteFunc(s.apis(), func(r schema.GroupVersionResource) bool { return !isFirst(r) })
	// This is known before the objects are read: otherwise, a list in between could bring one.
	if !s.up.CompleteFor([]string{leaf.Endpoint}, first) {
		s.queue.AddAfter(i, unlistedInterval)
		return true, nil
	}
	for _, r := range first {
		for _, o := range s.up.In(r, i.Cluster, i.Namespace) {
			ref := splitter.Ref{GroupResource: r.GroupResource(), Name: name(o.Unstructured)}
			if o.GetDeletionTimestamp() != nil || !kinds.IsFirst(ref.GroupResource, ref.Name) ||
				!splitter.Awaits(leaf.Unstructured, ref, o.Unstructured) || s.inForce(r, o) {
				continue
			}
			waits = true
			if problem := s.problemOf(r, o.Unstructured); problem != "" {
				return true, &refusal{api.ReasonUnprotected, fmt.Sprintf(
					"it waits for %s %s, which protects its pods and is not in cluster %s: %s", r.GroupResource(),
					name(o.Unstructured), s.Cluster, problem)}
			}
		}
	}
	return waits, nil
}

// inForce reports whether the cluster has an object as its leaf is now.
func (s *syncer) inForce(r schema.GroupVersionResource, leaf watch.Object) bool {
	key := watch.KeyOf(leaf.Unstructured)
	live := s.present(item{r, key}, leaf)
	generation := ""
	if g := leaf.GetGeneration(); g != 0 {
		generation = strconv.FormatInt(g, 10)
	}
	return live != nil && live.GetAnnotations()[annotationGeneration] == generation
}

// problemOf returns why a leaf is not synced, or "".
func (s *syncer) problemOf(r schema.GroupVersionResource, leaf *unstructured.Unstructured) string {
	if !slices.Contains(s.synced(), r) {
		return "its API is not synced to the cluster, see kcpctl workloads apis"
	}
	return api.SyncProblem(leaf)
}

// addPods syncs the workloads beside an object that has to be in the cluster before their pods.
func (s *syncer) addPods(r schema.GroupVersionResource, cluster, namespace string) {
	if !isFirst(r) {
		return
	}
	for _, workloads := range s.synced() {
		if !hasPods(workloads) {
			continue
		}
		for _, k := range s.up.KeysIn(workloads, cluster, namespace, "") {
			s.queue.Add(item{workloads, k})
		}
	}
}

// isFirst reports whether objects of a resource can have to be in a cluster before pods.
func isFirst(r schema.GroupVersionResource) bool {
	return kinds.IsFirst(r.GroupResource(), kinds.DefaultAccount)
}

// hasPods reports whether objects of a resource bring pods to a cluster.
func hasPods(r schema.GroupVersionResource) bool {
	k, _ := kinds.OfResource(r.GroupResource())
	return k.Template != nil
}
