package long

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/pkg/kcptest"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestKCPForTests runs two tests with a kcp of their own beside each other. Nothing is left of them.
func TestKCPForTests(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	o := kcptest.Options{Kcpctl: framework.Given(t, "E2E_KCPCTL"), BinDir: framework.Given(t, "E2E_KCP_BIN_DIR")}
	t.Run("both", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				client, err := dynamic.NewForConfig(kcptest.StartWith(t, o).Config(t, "root"))
				require.NoError(t, err)
				maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
				_, err = maps.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine"},
				}}, metav1.CreateOptions{})
				require.NoError(t, err, "the other test has a kcp of its own")
			})
		}
	})
	left, err := filepath.Glob(filepath.Join(state, "*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestACommandWithAnEphemeralKCP runs a command, which decides about the exit code, and a setup that exists is refused.
func TestACommandWithAnEphemeralKCP(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	r := s.Kcpctl(t, "up", "--ephemeral", "--", "sh", "-c", "kubectl get workspaces --request-timeout=30s && exit 7")
	require.Equal(t, 7, r.Code, r.Stderr)
	require.Empty(t, s.Left(t.Context(), t))

	require.NoError(t, os.MkdirAll(s.Runtime.(*framework.Local).Dir, 0o700))
	r = s.Kcpctl(t, "up", "--ephemeral", "--", "true")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "exists on this machine, and --ephemeral would remove its data")
}
