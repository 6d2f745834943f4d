package machine

import (
	"os"
	"strings"
)

// parts are the boot of the kernel, which all containers on it share, and the namespace that process IDs are counted in.
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
