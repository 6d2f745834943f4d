// Package local tests kcpctl with a real kcp on this machine, as users run it: with kcpctl and kubectl. These tests are
// part of make test.
package local
