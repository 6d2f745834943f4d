package day2

import (
	"fmt"
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

func TestLocalCertificates(t *testing.T) {
	testCertificates(t, framework.NewLocal(t, "minimal"), "server", "client", "requestheader")
}

// TestClusterCertificates rotates the etcd CA on a cluster, which TestClusterUnderLoad does not.
func TestClusterCertificates(t *testing.T) {
	testCertificates(t, framework.NewCluster(t, "minimal"), "etcd")
}

// TestClusterUnderLoad upgrades a setup with two replicas of every server while clients use it. All servers roll, and
// no request may fail.
func TestClusterUnderLoad(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	s.Text = fmt.Sprintf(replicated, s.Name, framework.OlderRelease)
	testUnderLoad(t, s, 0, change{"upgrade", (*underLoad).upgrade})
}

// TestClusterRotateUnderLoad rotates the authorities of the setup that TestClusterUnderLoad upgrades.
func TestClusterRotateUnderLoad(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	s.Text = fmt.Sprintf(replicated, s.Name, framework.NewerRelease)
	testUnderLoad(t, s, 0, change{"rotate authorities", (*underLoad).rotate})
}

// TestClusterRenewUnderLoad renews all certificates, which also rolls the members of etcd.
func TestClusterRenewUnderLoad(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	s.Text = fmt.Sprintf(replicated, s.Name, framework.NewerRelease)
	testUnderLoad(t, s, 0, change{"renew", (*underLoad).renew}, change{"a plain up", (*underLoad).Edit})
}

// TestLocalUnderLoad is TestClusterUnderLoad with one instance of each server: requests fail while it restarts, and
// must succeed afterwards.
func TestLocalUnderLoad(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	s.Runtime.(*framework.Local).Binaries = framework.Given(t, "E2E_KCP_OLDER_BIN_DIR")
	s.Text = fmt.Sprintf(single, s.Name, framework.OlderRelease)
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
func TestClusterLostEphemeralMember(t *testing.T) {
	framework.TestLostMember(t, framework.NewCluster(t, "minimal"), true)
}
