package syncer

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestALeafStaysUntilThePodsAreGone(t *testing.T) {
	const replicaSets = "apis/apps/v1/replicasets"
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	s.physical.Apply(t, "", replicaSets, fmt.Sprintf(`
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: %s, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: %s}]}}`,
		namespaceOf("1a"), s.below("1a", deployments, "web").GetUID()))
	s.kcp.Delete("1a", deployments, "shop", "web--c1")
	s.eventually(func() bool {
		o := s.below("1a", deployments, "web")
		return o != nil && o.GetDeletionTimestamp() != nil
	}, "the deletion goes down")
	require.NotNil(t, s.kcp.Get("1a", deployments, "shop", "web--c1"))
	s.physical.Delete("", replicaSets, namespaceOf("1a"), "web-1")
	s.eventually(func() bool {
		return s.below("1a", deployments, "web") == nil && s.kcp.Get("1a", deployments, "shop", "web--c1") == nil
	}, "the Deployment is gone, and its leaf")
}

// After a restart of an API server, some seconds can pass until it is listed again. What comes and goes in that time is
// never seen.
func TestALeafWhoseObjectWasNeverSeen(t *testing.T) {
	s := newSides(t)
	s.bind("1a")
	s.start()
	s.leaf("1a", "first", "{replicas: 1}")
	s.eventually(func() bool { return s.below("1a", deployments, "first") != nil }, "the syncer works")
	see := s.physical.Blind(deployments)
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.below("1a", deployments, "web") != nil }, "it is created")
	s.kcp.Delete("1a", deployments, "shop", "web--c1")
	s.eventually(func() bool { return s.below("1a", deployments, "web") == nil }, "it is gone")
	see()
	s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, "the leaf does not wait for the end of the object")
}

// A backup of kcp is restored, in which a leaf is being deleted. Its user has created the workload again since then,
// and the cluster has what was made of that: no user has deleted it.
func TestTheEndOfALeafDoesNotEndWhatWasMadeOfALaterOne(t *testing.T) {
	for name, tc := range map[string]struct {
		uid, created string
		stays        bool
	}{
		"a later leaf":                   {"other", "2026-01-01T00:00:05Z", true},
		"a later one of the same second": {"other", "2026-01-01T00:00:00Z", true},
		"one that cannot be compared":    {"other", "", true},
		"an earlier leaf":                {"other", "2025-12-31T23:59:59Z", false},
		"this leaf":                      {"", "2026-01-01T00:00:00Z", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			s.bind("1a")
			s.space("1a", "deployments.apps")
			leaf := s.kcp.Apply(s, "1a", deployments, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web},
  finalizers: [workloads.kcp.dev/syncer], creationTimestamp: "2026-01-01T00:00:00Z"}`)
			s.physical.Apply(s, "", deployments, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s, labels: {workloads.kcp.dev/setup: demo-x, workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/leaf: "1a|shop/web--c1", workloads.kcp.dev/leaf-uid: %s, workloads.kcp.dev/leaf-created: %q}}`,
				namespaceOf("1a"), cmp.Or(tc.uid, string(leaf.GetUID())), tc.created))
			s.kcp.Delete("1a", deployments, "shop", "web--c1")
			s.start()
			s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, "the leaf is gone")
			require.Equal(t, tc.stays, s.below("1a", deployments, "web") != nil)
		})
	}
}

// What an earlier kcpctl has written does not name the leaf by its UID.
func TestTheEndOfALeafEndsWhatAnEarlierSyncerHasWritten(t *testing.T) {
	require.False(t, ofLater(&unstructured.Unstructured{}, &unstructured.Unstructured{}))
}
