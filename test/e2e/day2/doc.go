// Package day2 has the longest end-to-end tests: what operators do to a kcp that serves, and what breaks below it. They
// mostly repeat what other tests prove, under load or with failures. make e2e-day2 runs them on two nodes.
package day2
