//go:build e2e && long && day2

package e2e

import (
	"fmt"
	"testing"
)

// These tests take long, and what they find is found elsewhere too: make e2e-day2 runs them.

func TestLocalCertificates(t *testing.T) {
	testCertificates(t, newLocal(t, "minimal"), "server", "client", "requestheader")
}

// TestClusterCertificates replaces what TestClusterUnderLoad does not, where etcds have an authority of their own.
func TestClusterCertificates(t *testing.T) { testCertificates(t, newCluster(t, "minimal"), "etcd") }

// TestClusterRotateUnderLoad replaces authorities of what TestClusterUnderLoad upgrades.
func TestClusterRotateUnderLoad(t *testing.T) {
	s := newCluster(t, "minimal")
	s.text = fmt.Sprintf(replicated, s.name, newerRelease)
	testUnderLoad(t, s, 0, change{"rotate authorities", (*underLoad).rotate})
}

// TestClusterRenewUnderLoad also rolls the members of etcds.
func TestClusterRenewUnderLoad(t *testing.T) {
	s := newCluster(t, "minimal")
	s.text = fmt.Sprintf(replicated, s.name, newerRelease)
	testUnderLoad(t, s, 0, change{"renew", (*underLoad).renew})
}

// TestLocalUnderLoad does what TestClusterUnderLoad does, where there is one of every server: requests fail while it restarts,
// and work again after.
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
