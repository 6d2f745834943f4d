package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const help = `#!/bin/sh
case "$*" in
*--external-hostname=*) echo "Usage:"; exit 0 ;;
*--experimental-bind-free-port=*) echo 'invalid argument "" for "--experimental-bind-free-port" flag'; exit 1 ;;
*=*) echo "unknown flag: --some"; exit 1 ;;
esac
cat <<'END'
Flags:
      --bind-address ip   The address. See --not-a-flag.
  -v, --v Level           number
                          - more: --not-a-flag-either
END
`

func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	for _, p := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, p.name), []byte(help), 0o755))
	}
	text, err := describe(dir, "v1.2.3")
	require.NoError(t, err)
	require.Contains(t, text, "kcp v1.2.3")
	require.Contains(t, text, "\nkcp:\nbind-address\nexperimental-bind-free-port\nexternal-hostname\nv\nkcp-front-proxy:\n")
}

func TestDescribeNeedsAllPrograms(t *testing.T) {
	_, err := describe(t.TempDir(), "v1.2.3")
	require.ErrorContains(t, err, "cache-server --help")
}
