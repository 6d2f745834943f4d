package machine

import (
	"os"
	"strings"
)

// parts returns the ID of the boot, which all containers on a kernel share, and the PID namespace.
func parts() []string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil
	}
	return []string{strings.TrimSpace(string(boot)), namespace}
}
