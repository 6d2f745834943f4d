package machine_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/machine"
)

// tell is set for a process that only says its ID.
const tell = "KCPCTL_TEST_MACHINE_ID"

func TestMain(m *testing.M) {
	if os.Getenv(tell) != "" {
		_, _ = os.Stdout.WriteString(machine.ID())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Processes that can see one another have the same ID, and always the same.
func TestProcessesOfAMachineShareItsID(t *testing.T) {
	id := machine.ID()
	require.Regexp(t, "^[0-9a-f]{12}$", id)
	require.Equal(t, id, machine.ID())
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), tell+"=1")
	out, err := other.Output()
	require.NoError(t, err)
	require.Equal(t, id, string(out))
}
