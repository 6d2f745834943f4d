package day2

import (
	"testing"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalAuthenticationEverywhere has all servers of kcp accept tokens, after front-proxies that differ.
func TestLocalAuthenticationEverywhere(t *testing.T) {
	a := framework.NewAuthenticated(t, "minimal")
	a.Up(t)
	framework.Step(t, "a workspace for a group of the issuer", a.CreateWorkspace)
	framework.Step(t, "everywhere, without anonymous requests", a.Everywhere)
}
