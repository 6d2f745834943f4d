package machine_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/machine"
)

// printID is set for a process that only prints its ID.
const printID = "KCPCTL_TEST_MACHINE_ID"

func TestMain(m *testing.M) {
	if os.Getenv(printID) != "" {
		_, _ = os.Stdout.WriteString(machine.ID())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Processes in one PID namespace have the same ID, and it never changes.
func TestProcessesOfAMachineShareItsID(t *testing.T) {
	id := machine.ID()
	require.Regexp(t, "^[0-9a-f]{12}$", id)
	require.Equal(t, id, machine.ID())
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), printID+"=1")
	out, err := other.Output()
	require.NoError(t, err)
	require.Equal(t, id, string(out))
}
