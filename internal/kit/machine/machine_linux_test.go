package machine_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/machine"
)

// A container shares the kernel with the host, but not the process IDs.
func TestAContainerIsAnotherMachine(t *testing.T) {
	inside := exec.Command(os.Args[0])
	inside.Env = append(os.Environ(), printID+"=1")
	inside.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := inside.Output()
	if err != nil {
		t.Logf("this system does not allow user namespaces: %v", err)
		return
	}
	require.NotEqual(t, machine.ID(), string(out))
}
