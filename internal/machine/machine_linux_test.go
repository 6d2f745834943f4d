package machine_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/machine"
)

// A container has the host's kernel, and process IDs of its own.
func TestAContainerIsAnotherMachine(t *testing.T) {
	inside := exec.Command(os.Args[0])
	inside.Env = append(os.Environ(), tell+"=1")
	inside.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := inside.Output()
	if err != nil {
		t.Logf("this system makes no namespaces for users: %v", err)
		return
	}
	require.NotEqual(t, machine.ID(), string(out))
}
