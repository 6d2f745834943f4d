package machine

import "golang.org/x/sys/unix"

// parts returns the ID of the boot: macOS has no PID namespaces.
func parts() []string {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return nil
	}
	return []string{boot}
}
