package kubeconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A rotation changes the entries of its installation, and no others. Certificates that are not those of the setup stay.
func TestRefresh(t *testing.T) {
	own := owner("demo", "1")
	before, after := authority("old"), authority("new")
	for name, tc := range map[string]struct {
		was     Owner
		ca      []byte
		o       RefreshOptions
		want    []byte
		updated []string
	}{
		"own":              {own, authority("old"), RefreshOptions{}, authority("new"), []string{"demo", "demo-base"}},
		"with another":     {own, authority("public", "old"), RefreshOptions{}, authority("new", "public"), []string{"demo", "demo-base"}},
		"another one only": {own, authority("public"), RefreshOptions{}, authority("public"), nil},
		"same name":        {owner("demo", "2"), authority("old"), RefreshOptions{}, authority("old"), nil},
		"another setup":    {owner("other", "1"), authority("old"), RefreshOptions{}, authority("old"), nil},
		"no ID":            {owner("demo", ""), authority("old"), RefreshOptions{}, authority("old"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := merged(t, tc.was, "https://kcp", tc.ca)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			tc.o.Owner, tc.o.Server = own, Change{before, after}
			got, err := Refresh(t.Context(), path, tc.o)
			require.NoError(t, err)
			require.Equal(t, tc.updated, got.Updated)
			require.Equal(t, string(tc.want), string(read(t, path).Clusters["demo"].CertificateAuthorityData))
			require.Equal(t, "work", read(t, path).CurrentContext)
			if tc.updated == nil {
				now, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, string(content), string(now))
			}
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		})
	}
	none := filepath.Join(t.TempDir(), "no", "config")
	_, err := Refresh(t.Context(), none, RefreshOptions{Owner: own, Server: Change{before, after}})
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Dir(none))
}
