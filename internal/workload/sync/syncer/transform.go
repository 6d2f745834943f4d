package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Annotations of objects in a physical cluster.
const (
	// annotationLeaf is the key of the leaf that an object was made from.
	annotationLeaf = api.Group + "/leaf"
	// annotationGeneration is the generation of the leaf that the spec was made from.
	annotationGeneration = api.Group + "/leaf-generation"
	// annotationUID and annotationCreated have the UID of the leaf, and when kcp has created it: a leaf of the same
	// name can have been there before.
	annotationUID     = api.Group + "/leaf-uid"
	annotationCreated = api.Group + "/leaf-created"
)

// headless is the value of clusterIP with which a Service gets no address. It is the user's decision, not the
// cluster's.
const headless = "None"

// name returns the name that a leaf has in the physical cluster: the name of its root. A user can write the annotation:
// of a name that cannot be asked for, whether its object is gone would never be known.
func name(leaf *unstructured.Unstructured) string {
	n := leaf.GetAnnotations()[api.AnnotationName]
	if n != "" && len(n) <= validation.DNS1123SubdomainMaxLength && len(rest.IsValidPathSegmentName(n)) == 0 {
		return n
	}
	return leaf.GetName()
}

// transform returns the object for the physical cluster that a leaf stands for. The leaf is not changed.
func (s *syncer) transform(leaf *unstructured.Unstructured) *unstructured.Unstructured {
	object := map[string]any{}
	for field, value := range leaf.Object {
		if field != "metadata" && field != "status" {
			object[field] = value
		}
	}
	out := &unstructured.Unstructured{Object: object}
	out = out.DeepCopy()
	gvk := leaf.GroupVersionKind()
	none := false
	if gvk.GroupKind() == (schema.GroupKind{Kind: "Service"}) {
		ip, _, _ := unstructured.NestedString(object, "spec", "clusterIP")
		none = ip == headless
	}
	for _, path := range kinds.Placed(gvk.GroupKind()) {
		kinds.Visit(out.Object, path, func(at map[string]any, field string) { delete(at, field) })
	}
	if none {
		// The spec is a map: clusterIP was in it.
		_ = unstructured.SetNestedField(out.Object, headless, "spec", "clusterIP")
	}
	key := watch.KeyOf(leaf)
	out.SetName(name(leaf))
	out.SetNamespace(api.DownstreamNamespace(s.Setup, key.Cluster, key.Namespace))
	out.SetLabels(splitter.UsersOnly(leaf.GetLabels()))
	out.SetAnnotations(splitter.UsersOnly(leaf.GetAnnotations()))
	s.mark(out, leaf)
	splitter.SetToken(out, string(corev1.SecretTypeServiceAccountToken))
	return out
}

// mark sets the labels and annotations by which the syncer finds its objects.
func (s *syncer) mark(out, leaf *unstructured.Unstructured) {
	l, a := out.GetLabels(), out.GetAnnotations()
	l[api.LabelSetup], l[api.LabelCluster] = s.Setup, s.Cluster
	a[annotationLeaf] = watch.KeyOf(leaf).String()
	if g := leaf.GetGeneration(); g != 0 {
		a[annotationGeneration] = strconv.FormatInt(g, 10)
	}
	a[annotationUID], a[annotationCreated] = string(leaf.GetUID()), leaf.GetCreationTimestamp().UTC().Format(time.RFC3339)
	out.SetLabels(l)
	out.SetAnnotations(a)
}

// reserved are the ConfigMaps that namespaces of some clusters have by themselves, besides kinds.IsEverywhere:
// controllers of the cluster would change them back.
var reserved = []string{"openshift-service-ca.crt", "istio-ca-root-cert"}

// isReserved reports whether objects of users do not replace an object. The account of pods that name none can have
// pull secrets of users.
func isReserved(gr schema.GroupResource, name string) bool {
	return kinds.IsEverywhere(gr, name) && name != kinds.DefaultAccount ||
		gr == schema.GroupResource{Resource: "configmaps"} && slices.Contains(reserved, name)
}

// allowed returns the object for the physical cluster that a leaf stands for, as the cluster permits it.
func (s *syncer) allowed(i item, leaf *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	object := s.transform(leaf)
	if n := object.GetName(); isReserved(i.GroupResource(), n) {
		return nil, &refusal{api.ReasonNameCollision, fmt.Sprintf(
			"each namespace of cluster %s has %s %s by itself, and objects of users do not replace it: "+
				"rename the object",
			s.Cluster, i.GroupResource(), n)}
	}
	if at := api.HugeQuantity(object.Object); at != "" {
		return nil, &refusal{api.ReasonInvalid, fmt.Sprintf(
			"%s is a quantity that no API server can read, and cluster %s does not get it: correct it", at, s.Cluster)}
	}
	t := tenant{s.Setup, i.Cluster, s.Cluster}
	t.peers(object)
	if denied := t.affinity(kinds.PodSpec(object)); denied != nil {
		return nil, denied
	}
	c, _ := s.seen()
	if denied := restrict(s.Cluster, c.NodeSelector(), object); denied != nil {
		return nil, denied
	}
	return object, nil
}

// restrict adds the node selector of the Cluster to an object, or returns why a cluster does not get it, whatever its
// tenancy is. Other rules for pods are in the cluster, because they are also for pods that controllers make there.
func restrict(cluster string, nodes map[string]string, o *unstructured.Unstructured) *refusal {
	r := restriction{cluster: cluster}
	pod := kinds.PodSpec(o)
	if pod == nil {
		return nil
	}
	r.pod(pod)
	if template, _ := kinds.PodTemplate(o); o.GetKind() != "Pod" {
		r.template("the pod template", template)
	}
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, template := range templates {
		r.template("spec.volumeClaimTemplates", template)
	}
	if r.refused == nil && len(nodes) > 0 {
		r.selectNodes(pod, nodes)
	}
	return r.refused
}

// restriction checks an object. The first thing that is not permitted counts.
type restriction struct {
	cluster string
	refused *refusal
}

func (r *restriction) refuse(format string, args ...any) {
	if r.refused == nil {
		r.refused = &refusal{api.ReasonNotAllowed, fmt.Sprintf(format, args...) +
			" is not permitted in cluster " + r.cluster + ": remove it"}
	}
}

func (r *restriction) pod(spec map[string]any) {
	if node, _ := spec["nodeName"].(string); node != "" {
		r.refuse("nodeName %s of a pod, which passes by the scheduler,", node)
	}
	kinds.Visit(spec, []string{"volumes[]", "ephemeral", "volumeClaimTemplate"},
		func(at map[string]any, field string) { r.template("spec.volumes", at[field]) })
}

// template checks a template of pods or of PersistentVolumeClaims. With labels and annotations of kcpctl, an object
// that the cluster makes of it would look like an object of the syncer.
func (r *restriction) template(where string, template any) {
	t, _ := template.(map[string]any)
	spec, _ := t["spec"].(map[string]any)
	if volume, _ := spec["volumeName"].(string); volume != "" {
		r.refuse("volumeName %s in %s, which can be the volume of another workspace,", volume, where)
	}
	metadata, _ := t["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		values, _ := metadata[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if domain, _, _ := strings.Cut(key, "/"); domain == api.Group {
				r.refuse("%s in the %s of %s", key, field, where)
			}
		}
	}
}

func (r *restriction) selectNodes(spec map[string]any, nodes map[string]string) {
	selector, _ := spec["nodeSelector"].(map[string]any)
	out := map[string]any{}
	maps.Copy(out, selector)
	for k, v := range nodes {
		if has, ok := out[k]; ok && has != v {
			r.refused = &refusal{api.ReasonNotAllowed, fmt.Sprintf(
				"nodeSelector %s=%v is not permitted in cluster %s, whose spec.tenancy.pods.nodeSelector is %s=%s: "+
					"remove it, or ask the administrator to change that",
				k, has, r.cluster, k, v)}
			return
		}
		out[k] = v
	}
	spec["nodeSelector"] = out
}

// tenant is a workspace whose objects refer to its namespaces, which have other names and labels in the cluster.
type tenant struct{ setup, workspace, cluster string }

// peers confines the selectors of namespaces in a NetworkPolicy to namespaces of the workspace, or of none.
func (t tenant) peers(o *unstructured.Unstructured) {
	splitter.EachPeer(o, func(peers []map[string]any) []map[string]any {
		for _, p := range peers {
			if selector, ok := p[splitter.NamespaceSelector].(map[string]any); ok && !ofCluster(selector) {
				t.confine(selector)
			}
		}
		return peers
	})
}

// ofCluster reports whether a selector is about namespaces that belong to no workspace.
func ofCluster(selector map[string]any) bool {
	expressions, _ := selector["matchExpressions"].([]any)
	return slices.ContainsFunc(expressions, func(e any) bool {
		expression, _ := e.(map[string]any)
		return expression["key"] == api.LabelSetup && expression["operator"] == "DoesNotExist"
	})
}

// confine adds to a selector that the namespace is of the workspace. What it says about the name is about the name in
// the workspace. It returns another label that the selector is about, or "".
func (t tenant) confine(selector map[string]any) (other string) {
	named := func(key string) string {
		if key == corev1.LabelMetadataName {
			return api.LabelNamespace
		}
		if key != api.LabelNamespace {
			other = key
		}
		return key
	}
	values, _ := selector["matchLabels"].(map[string]any)
	out := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		out[named(key)] = values[key]
	}
	expressions, _ := selector["matchExpressions"].([]any)
	for _, e := range expressions {
		if expression, ok := e.(map[string]any); ok {
			key, _ := expression["key"].(string)
			expression["key"] = named(key)
		}
	}
	// Requirements are all of them needed: the user's cannot take these away.
	selector["matchExpressions"] = append(expressions,
		map[string]any{"key": api.LabelSetup, "operator": "In", "values": []any{t.setup}},
		map[string]any{"key": api.LabelWorkspace, "operator": "In", "values": []any{t.workspace}})
	if delete(selector, "matchLabels"); len(out) > 0 {
		selector["matchLabels"] = out
	}
	return other
}

// affinity makes the terms of the affinity of pods about the namespaces of the workspace.
func (t tenant) affinity(pod map[string]any) *refusal {
	for _, term := range affinityTerms(pod) {
		if names, ok := term["namespaces"].([]any); ok {
			out := []any{}
			for _, n := range names {
				text, _ := n.(string)
				out = append(out, api.DownstreamNamespace(t.setup, t.workspace, text))
			}
			term["namespaces"] = out
		}
		selector, ok := term[splitter.NamespaceSelector].(map[string]any)
		if !ok {
			continue
		}
		if other := t.confine(selector); other != "" {
			return &refusal{api.ReasonNotAllowed, fmt.Sprintf(
				"a term of spec.affinity selects namespaces by label %s, which namespaces of cluster %s do not have: "+
					"list them in the field namespaces, or select them by %s",
				other, t.cluster, corev1.LabelMetadataName)}
		}
	}
	return nil
}

func affinityTerms(pod map[string]any) (all []map[string]any) {
	add := func(term map[string]any, _ string) { all = append(all, term) }
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		for _, list := range []string{"requiredDuringSchedulingIgnoredDuringExecution[]",
			"preferredDuringSchedulingIgnoredDuringExecution[].podAffinityTerm"} {
			kinds.Visit(pod, strings.Split("affinity."+kind+"."+list+".namespaces", "."), add)
		}
	}
	return all
}

// maxOutcome is the length of the longest message of an outcome, in bytes. API servers and webhooks write it.
const maxOutcome = 4 << 10

// writeStatus writes the status of a leaf, if it changes.
func (s *syncer) writeStatus(ctx context.Context, i item, leaf watch.Object, object *unstructured.Unstructured,
	o outcome) error {
	o.message = heartbeat.CutTo(o.message, maxOutcome)
	if slices.Contains(api.Dependencies(), i.GroupVersionResource) {
		_, err := s.annotate(ctx, i, leaf, o)
		return err
	}
	gk := leaf.GroupVersionKind().GroupKind()
	own := s.dropped.HasConditions(gk, i.Cluster)
	status := statusOf(leaf.Unstructured, object, o, s.Now(), own)
	s.dropped.Strip(gk, i.Cluster, status)
	if !own {
		if annotated, err := s.annotate(ctx, i, leaf, o); annotated || err != nil {
			return err // the leaf comes back with the watch, and its status follows
		}
	}
	changes, patch := api.StatusPatch(leaf.Unstructured, status)
	if patch == nil {
		return nil
	}
	live, err := s.patch(ctx, i, leaf, patch, "status")
	switch {
	case s.dropped.Refused(gk, i.Cluster, err):
		return s.writeStatus(ctx, i, leaf, object, o) // an annotation has the outcome instead
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err): // the API has no status, or another one
		_, err = s.annotate(ctx, i, leaf, o)
		return err
	case err != nil:
		return err
	}
	s.observe(Up, i)
	if s.dropped.Learn(gk, i.Cluster, changes, live) {
		s.queue.Add(i) // an annotation has the outcome instead
	}
	return nil
}

// annotate writes the outcome to a leaf that has no status. It reports whether that changes anything.
func (s *syncer) annotate(ctx context.Context, i item, leaf watch.Object, o outcome) (bool, error) {
	var want any
	if o.reason != api.ReasonSynced {
		want = o.reason + ": " + o.message
	}
	if have, ok := leaf.GetAnnotations()[api.AnnotationSyncError]; ok == (want != nil) && (!ok || have == want) {
		return false, nil
	}
	_, err := s.patch(ctx, i, leaf,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationSyncError: want}}})
	if apierrors.IsNotFound(err) {
		return true, nil // the leaf is gone
	}
	return true, err
}

// setFinalizers sets the finalizers of a leaf, unless it has changed since it was read.
func (s *syncer) setFinalizers(ctx context.Context, i item, leaf watch.Object, all []string) error {
	_, err := s.patch(ctx, i, leaf, map[string]any{"metadata": map[string]any{
		"finalizers": all, "resourceVersion": leaf.GetResourceVersion(),
	}})
	return err
}

// patch sends a merge patch for a leaf to the endpoint that serves it.
func (s *syncer) patch(
	ctx context.Context, i item, leaf watch.Object, patch map[string]any, subresources ...string,
) (*unstructured.Unstructured, error) {
	client, err := s.up.Resource(leaf.Endpoint, i.Cluster, i.Namespace, i.GroupVersionResource)
	if err != nil {
		return nil, err
	}
	return mergepatch.Send(ctx, client, api.ManagerSyncer, i.Name, leaf.GetUID(), patch, subresources...)
}

type outcome struct {
	reason, message string
}

func synced() outcome { return outcome{reason: api.ReasonSynced} }

// statusOf returns the status for a leaf: the status of the object in the physical cluster, or the current one without
// an object there. It has the condition Synced, if own is true.
func statusOf(leaf, object *unstructured.Unstructured, o outcome, now time.Time, own bool) map[string]any {
	present, _, _ := unstructured.NestedMap(leaf.Object, "status")
	status := present
	if object != nil {
		status, _, _ = unstructured.NestedMap(object.Object, "status")
	}
	if status == nil {
		status = map[string]any{}
	}
	if object != nil {
		observe(status, present, leaf, object)
	}
	conditions, isList := status["conditions"].([]any)
	others := slices.DeleteFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == api.ConditionSynced
	})
	if own {
		others = append(others, o.condition(api.ConditionIn(leaf, api.ConditionSynced), now))
	}
	if own || isList {
		status["conditions"] = others
	}
	return status
}

// observe sets observedGeneration to a generation of the leaf: the cluster has its own. It is the current one of the
// leaf only when the cluster has the spec of that generation and has acted on it. kubectl rollout status relies on it.
func observe(status, present map[string]any, leaf, object *unstructured.Unstructured) {
	observed, ok, _ := unstructured.NestedInt64(status, "observedGeneration")
	if !ok {
		return
	}
	of, err := strconv.ParseInt(object.GetAnnotations()[annotationGeneration], 10, 64)
	if err == nil && observed >= object.GetGeneration() && of <= leaf.GetGeneration() {
		status["observedGeneration"] = of
		return
	}
	delete(status, "observedGeneration")
	if before, ok := present["observedGeneration"]; ok {
		status["observedGeneration"] = before
	}
}

// condition returns the condition. It keeps the time of the previous one if the status has not changed.
func (o outcome) condition(previous *metav1.Condition, now time.Time) map[string]any {
	status := "False"
	if o.reason == api.ReasonSynced {
		status = "True"
	}
	since := now
	if previous != nil && string(previous.Status) == status && !previous.LastTransitionTime.IsZero() {
		since = previous.LastTransitionTime.Time
	}
	return map[string]any{
		"type": api.ConditionSynced, "status": status, "reason": o.reason, "message": o.message,
		"lastTransitionTime": since.UTC().Format(time.RFC3339),
	}
}

// outcomeIn returns the outcome that a leaf has. It is empty if there is none.
func outcomeIn(leaf *unstructured.Unstructured) outcome {
	if c := api.ConditionIn(leaf, api.ConditionSynced); c != nil {
		return outcome{c.Reason, c.Message}
	}
	reason, message, _ := strings.Cut(leaf.GetAnnotations()[api.AnnotationSyncError], ": ")
	return outcome{reason, message}
}
