package day2

import (
	"fmt"
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// Only the leader of a shard's replicas knows what is being moved.
func TestClusterDrain(t *testing.T) {
	for replicas := range 3 {
		t.Run(fmt.Sprintf("%d replicas", replicas+1), func(t *testing.T) {
			framework.TestDrain(t, framework.NewCluster(t, "minimal"), "managed: {}", replicas+1)
		})
	}
}
