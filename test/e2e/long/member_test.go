package long

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterLostMember deletes the data of an etcd member while clients write, and replaces the member.
func TestClusterLostMember(t *testing.T) {
	framework.TestLostMember(t, framework.NewCluster(t, "minimal"), false)
}
