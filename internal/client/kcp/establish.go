package kcp

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// systemCRDClusters are the logical clusters of the CRDs that kcp itself creates when it starts: its own CRDs, and the
// CRDs of APIBindings (kcp: pkg/server/apiextensions.go, pkg/reconciler/apis/apibinding/apibinding_controller.go).
var systemCRDClusters = []string{systemCluster, "system:bound-crds"}

// creationDelay is how long creations of objects are delayed after their CRD was established (apiextensions:
// pkg/apiserver/customresource_handler.go), rounded up to whole seconds.
const creationDelay = 3 * time.Second

// EstablishCRDs sets the condition Established of kcp's own CRDs on a new shard as soon as their names are accepted,
// until ctx ends. The client's server is the shard.
//
// Otherwise each of them is established after five seconds, and objects are created two seconds later: kcp tells the
// API extensions server that it is one of three (kcp: pkg/server/config.go, CreateAPIExtensionsConfig), which then
// waits until the others have seen the CRD (apiextensions: pkg/apiserver/customresource_handler.go). Meanwhile the
// informers of the shard fail, and retry with growing pauses. A new shard has no clients yet, and its replicas see a
// CRD within milliseconds.
func (c *Client) EstablishCRDs(ctx context.Context) {
	for ctx.Err() == nil {
		_ = c.establish(ctx)
		_ = poll.Pause(ctx, pollInterval)
	}
}

// establish establishes CRDs until the watch ends.
func (c *Client) establish(ctx context.Context) error {
	// Without a resource version the watch begins with the existing CRDs.
	watch, err := c.workspace(wildcard).Resource(definitionResource).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		crd, ok := event.Object.(*unstructured.Unstructured)
		if !ok || !awaitsEstablishment(crd) {
			continue
		}
		setEstablished(ctx, c.workspace(crd.GetAnnotations()[kcpapi.AnnotationCluster]), crd)
	}
	return nil
}

// awaitsEstablishment reports whether a CRD is one of kcp's own ones, and nothing but time is missing.
func awaitsEstablishment(crd *unstructured.Unstructured) bool {
	return slices.Contains(systemCRDClusters, crd.GetAnnotations()[kcpapi.AnnotationCluster]) &&
		isTrue(crd, "NamesAccepted") && !isTrue(crd, "Established")
}

// setEstablished sets the condition Established. It may fail: kcp sets it too, after five seconds.
func setEstablished(ctx context.Context, at dynamic.Interface, crd *unstructured.Unstructured) {
	crd = crd.DeepCopy()
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	conditions = slices.DeleteFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established"
	})
	conditions = append(conditions, map[string]any{
		"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
		"message":            "the initial names have been accepted",
		"lastTransitionTime": time.Now().Add(-creationDelay).UTC().Format(time.RFC3339),
	})
	if unstructured.SetNestedSlice(crd.Object, conditions, "status", "conditions") == nil {
		definitions := at.Resource(definitionResource)
		_, _ = definitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{FieldManager: object.FieldManager})
	}
}
