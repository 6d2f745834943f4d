// Package cluster tests kcpctl with a real kcp on a Kubernetes node, as users run it: with kcpctl and kubectl. These tests
// are part of make test.
package cluster
