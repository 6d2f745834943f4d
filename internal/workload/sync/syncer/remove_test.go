package syncer

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
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

// A user creates an object with the label of a cluster. Its end must not depend on what the annotations say.
func TestALeafWithANameThatIsNone(t *testing.T) {
	for _, name := range []string{"a/b", "..", "50%", strings.Repeat("n", 300)} {
		s := newSides(t)
		s.start()
		s.kcp.Apply(t, "1a", deployments, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: "`+name+`"}}`)
		s.eventually(func() bool { return len(s.kcp.Get("1a", deployments, "shop", "web--c1").GetFinalizers()) > 0 }, "seen")
		s.kcp.Delete("1a", deployments, "shop", "web--c1")
		s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, name)
	}
}

// A cluster that stops serving the version of an object does not say that the object is gone.
func TestALeafStaysWhileItsVersionIsNotServed(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	var asked atomic.Int32
	s.physical.Refuse(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/deployments/web") {
			asked.Add(1)
			return http.StatusNotFound, fakeapi.Unserved
		}
		return 0, ""
	})
	isGone := func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }
	s.kcp.Delete("1a", deployments, "shop", "web--c1")
	s.eventually(func() bool { return asked.Load() > 1 || isGone() }, "the syncer asks again")
	require.False(t, isGone())
	s.physical.Refuse(nil)
	s.eventually(func() bool { return s.below("1a", deployments, "web") == nil && isGone() }, "it is served again")
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

// The namespace in the cluster goes with its last leaf. What others have put there stays, and is shown.
func TestTheNamespaceOfTheLastLeaf(t *testing.T) {
	secret := "{kind: Secret, apiVersion: v1, metadata: {name: tls, namespace: " + namespaceOf("1a") + "%s}}"
	for name, tc := range map[string]struct {
		path, other string
		stays       bool
	}{
		"is empty":                     {"", "", false},
		"has what each namespace has":  {configMaps, "{kind: ConfigMap, apiVersion: v1, metadata: {name: kube-root-ca.crt, namespace: " + namespaceOf("1a") + "}}", false},
		"has what its controller owns": {secrets, fmt.Sprintf(secret, ", ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: x, controller: true}]"), false},
		"has a certificate":            {secrets, fmt.Sprintf(secret, ""), true},
		"has volumes": {volumes, "{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: data-web-0, namespace: " + namespaceOf("1a") + "}}",
			true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSides(t)
			s.bind("1a")
			s.start()
			s.leaf("1a", "web", "{replicas: 1}")
			s.leaf("1a", "other", "{replicas: 1}")
			s.eventually(func() bool {
				return s.condition("1a", "web") == "True Synced: " && s.condition("1a", "other") == "True Synced: "
			}, "synced")
			if tc.path != "" {
				s.physical.Apply(s, "", tc.path, tc.other)
			}
			s.kcp.Delete("1a", deployments, "shop", "web--c1")
			s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "web--c1") == nil }, "the first leaf is gone")
			require.NotNil(t, s.physical.Get("", spaces, "", namespaceOf("1a")), "it has another leaf")
			s.kcp.Delete("1a", deployments, "shop", "other--c1")
			s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", "other--c1") == nil }, "the last leaf is gone")
			require.Equal(t, tc.stays, s.physical.Get("", spaces, "", namespaceOf("1a")) != nil)
		})
	}
}

// Several leaves end at the same time: each worker looks when the objects of the others may still be there.
func TestTheNamespaceOfLeavesThatEndTogether(t *testing.T) {
	s := newSides(t)
	s.start()
	const n = 20
	for i := range n {
		s.leaf("1a", fmt.Sprint("web-", i), "{replicas: 1}")
	}
	s.eventually(func() bool { return len(s.physical.Names("", deployments)) == n }, "synced")
	for i := range n {
		s.kcp.Delete("1a", deployments, "shop", fmt.Sprintf("web-%d--c1", i))
	}
	s.eventually(func() bool { return len(s.kcp.Names("1a", deployments)) == 0 }, "the leaves are gone")
	require.Nil(t, s.physical.Get("", spaces, "", namespaceOf("1a")))
}

// A namespace whose objects may have leaves of an API that is not synced stays.
func TestTheNamespaceOfTheLastLeafHadOtherAPIs(t *testing.T) {
	s := newSides(t)
	s.start()
	s.leaf("1a", "web", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "web") == "True Synced: " }, "synced")
	s.physical.Apply(s, "", spaces, fmt.Sprintf(
		`{metadata: {name: %s, annotations: {has.workloads.kcp.dev/statefulsets.apps: "true"}}}`, namespaceOf("1a")))
	s.leaf("1a", "later", "{replicas: 1}")
	s.eventually(func() bool { return s.condition("1a", "later") == "True Synced: " }, "the watch shows it")
	for _, name := range []string{"web--c1", "later--c1"} {
		s.kcp.Delete("1a", deployments, "shop", name)
		s.eventually(func() bool { return s.kcp.Get("1a", deployments, "shop", name) == nil }, "the leaf is gone")
	}
	require.NotNil(t, s.physical.Get("", spaces, "", namespaceOf("1a")))
}
