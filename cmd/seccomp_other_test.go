//go:build !linux

package cmd_test

// Other systems have no seccomp: the script that needs it is skipped.
func forbidSockets() {}

func forbidListening() {}
