package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module m\n\ngo 1.24\n",
		"m.go":            "package m\n\nvar N = limit\n",
		"m_linux.go":      "package m\n\nconst limit = 1\n",
		"m_darwin.go":     "package m\n\nconst limit = 1\n",
		"m_test.go":       "package m\n\nvar _ = only\n",
		"x_linux_test.go": "package m\n\nconst only = 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, check(dir, true, []string{"linux/amd64", "./..."}))
	require.NoError(t, check(dir, false, []string{"darwin/arm64", "./..."}))
	require.ErrorContains(t, check(dir, true, []string{"darwin/arm64", "./..."}), "errors for darwin/arm64")
	require.ErrorContains(t, check(dir, false, []string{"windows/amd64", "./..."}), "1 errors for windows/amd64")
	require.ErrorContains(t, check(dir, false, []string{"windows/none", "./..."}), "windows/none")
	require.ErrorContains(t, check(dir, false, []string{"linux/amd64"}), "usage")
}
