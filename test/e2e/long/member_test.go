package long

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterLostMember deletes the data of an etcd member while clients write, and replaces the member.
func TestClusterLostMember(t *testing.T) {
	framework.TestLostMember(t, framework.NewCluster(t, "minimal"), false)
}

// TestClusterReplacedAuthorities loses the PKI, and replaces the authorities of an etcd with three members. A member
// with the new authority cannot join members with the previous one, so that a rolling update would stop at the first.
func TestClusterReplacedAuthorities(t *testing.T) {
	framework.TestReplacedAuthorities(t, framework.NewCluster(t, "minimal"))
}
