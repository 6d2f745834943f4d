package e2e

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalSharded runs examples/sharded.yaml through its life cycle.
func TestLocalSharded(t *testing.T) {
	s := framework.NewLocal(t, "sharded")
	lives(t, s, begins(), goesOn())
}
