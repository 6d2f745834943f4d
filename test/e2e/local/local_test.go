package local

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalSharded runs examples/sharded.yaml through its life cycle.
func TestLocalSharded(t *testing.T) {
	s := framework.NewLocal(t, "sharded")
	framework.Lives(t, s, framework.Begins(), framework.GoesOn())
}
