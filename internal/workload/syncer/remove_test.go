package syncer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
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

// After a restart of an API server, some seconds can pass until it is listed again. What comes and goes in that time is never seen.
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
