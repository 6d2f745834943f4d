// Package e2e tests kcpctl with a real kcp, as users run it: with kcpctl and kubectl, on a Kubernetes node and on this
// machine. These tests are part of make test. Their helpers are in package framework.
package e2e
