package framework

import (
	"context"
	"os"
	"regexp"
	"testing"
)

// The links that a test can cut.
const (
	// BetweenNodes is the link between the clusters. kcpctl reaches both.
	BetweenNodes = "nodes"
	// ToSecondNode is the link from this machine to the second cluster. The clusters reach each other.
	ToSecondNode = "machine"
)

// Cut cuts a link of the testbed: connections hang until it is healed.
func Cut(t *testing.T, link string) {
	t.Helper()
	t.Cleanup(func() { Heal(t) })
	Command{Name: os.Getenv("E2E_TESTBED"), Args: []string{"link", "down", "--node", "b", "--to", link}}.Run(t.Context(), t).OK(t)
}

// Heal restores all links.
func Heal(t *testing.T) {
	t.Helper()
	Command{Name: os.Getenv("E2E_TESTBED"), Args: []string{"link", "up"}}.Run(context.Background(), t).OK(t)
}

// Running matches the event that a component is changed.
func Running(component string) *regexp.Regexp {
	return regexp.MustCompile(`"name":"` + component + `","status":"running"`)
}
