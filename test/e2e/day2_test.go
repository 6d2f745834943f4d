//go:build e2e && long && day2

package e2e

import (
	"fmt"
	"testing"
)

// These tests take long and mostly repeat what other tests prove: only make e2e-day2 runs them.

func TestLocalCertificates(t *testing.T) {
	testCertificates(t, newLocal(t, "minimal"), "server", "client", "requestheader")
}

// TestClusterCertificates rotates the etcd CA on a cluster, which TestClusterUnderLoad does not.
func TestClusterCertificates(t *testing.T) { testCertificates(t, newCluster(t, "minimal"), "etcd") }

// TestClusterUnderLoad upgrades a setup with two replicas of every server while clients use it. All servers roll, and
// no request may fail.
func TestClusterUnderLoad(t *testing.T) {
	s := newCluster(t, "minimal")
	s.text = fmt.Sprintf(replicated, s.name, olderRelease)
	testUnderLoad(t, s, 0, change{"upgrade", (*underLoad).upgrade})
}

// TestClusterRotateUnderLoad rotates the authorities of the setup that TestClusterUnderLoad upgrades.
func TestClusterRotateUnderLoad(t *testing.T) {
	s := newCluster(t, "minimal")
	s.text = fmt.Sprintf(replicated, s.name, newerRelease)
	testUnderLoad(t, s, 0, change{"rotate authorities", (*underLoad).rotate})
}

// TestClusterRenewUnderLoad renews all certificates, which also rolls the members of etcd.
func TestClusterRenewUnderLoad(t *testing.T) {
	s := newCluster(t, "minimal")
	s.text = fmt.Sprintf(replicated, s.name, newerRelease)
	testUnderLoad(t, s, 0, change{"renew", (*underLoad).renew}, change{"a plain up", (*underLoad).edit})
}

// TestLocalUnderLoad is TestClusterUnderLoad with one instance of each server: requests fail while it restarts, and
// must succeed afterwards.
func TestLocalUnderLoad(t *testing.T) {
	s := newLocal(t, "minimal")
	s.runtime.(*local).binaries = given(t, "E2E_KCP_OLDER_BIN_DIR")
	s.text = fmt.Sprintf(single, s.name, olderRelease)
	testUnderLoad(t, s, 10_000, change{"upgrade", (*underLoad).upgrade},
		change{"renew", (*underLoad).renew}, change{"rotate authorities", (*underLoad).rotate})
}

const single = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  version: %s
  shards: [{name: alpha}]
  kubeconfigs:
    - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
`

// TestClusterLostEphemeralMember is TestClusterLostMember with a member that keeps its data in its pod.
func TestClusterLostEphemeralMember(t *testing.T) { testLostMember(t, newCluster(t, "minimal"), true) }
