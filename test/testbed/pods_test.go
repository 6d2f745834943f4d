package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWeighPods(t *testing.T) {
	for version, tc := range map[string]struct{ given, file, want string }{
		"cgroup v1": {"cpu/tasks", "cpu/k8s.io/cpu.shares", "16384"},
		"cgroup v2": {"cgroup.controllers", "k8s.io/cpu.weight", "1600"},
	} {
		t.Run(version, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, tc.given)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, tc.given), nil, 0o600))
			require.NoError(t, weighPods(root))
			got, err := os.ReadFile(filepath.Join(root, tc.file))
			require.NoError(t, err)
			require.Equal(t, tc.want, string(got))
		})
	}
}
