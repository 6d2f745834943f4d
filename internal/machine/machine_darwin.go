package machine

import "golang.org/x/sys/unix"

// parts are the boot of the kernel: there are no namespaces.
func parts() []string {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return nil
	}
	return []string{boot}
}
