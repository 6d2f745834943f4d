package kubeconfig

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Portable keeps every field that says how the cluster is reached, also one that a later client-go adds.
func TestPortableKeepsEveryField(t *testing.T) {
	other := map[string]bool{"LocationOfOrigin": true, "Extensions": true, "InsecureSkipTLSVerify": true, "CertificateAuthority": true}
	for f := range reflect.TypeFor[api.Cluster]().Fields() {
		if other[f.Name] {
			continue
		}
		c := &api.Cluster{Server: "https://kcp", LocationOfOrigin: "/home"}
		v := reflect.ValueOf(c).Elem().FieldByName(f.Name)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.SetBytes([]byte("x"))
		}
		got, err := Portable(c)
		require.NoError(t, err, f.Name)
		require.Equal(t, v.Interface(), reflect.ValueOf(got).Elem().FieldByName(f.Name).Interface(), f.Name)
		require.Empty(t, got.LocationOfOrigin)
		require.True(t, SameCluster(c, got), f.Name)
		require.False(t, SameCluster(c, &api.Cluster{}), f.Name)
	}
}

func TestPortableNeedsNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(path, []byte("file"), 0o600))
	got, err := Portable(&api.Cluster{CertificateAuthority: path})
	require.NoError(t, err)
	require.Equal(t, &api.Cluster{CertificateAuthorityData: []byte("file")}, got)
	got, err = Portable(&api.Cluster{CertificateAuthority: path, CertificateAuthorityData: []byte("data")})
	require.NoError(t, err)
	require.Equal(t, &api.Cluster{CertificateAuthorityData: []byte("data")}, got)
	_, err = Portable(&api.Cluster{CertificateAuthority: path + "x"})
	require.ErrorContains(t, err, "read its certificate authority: ")
	_, err = Portable(&api.Cluster{InsecureSkipTLSVerify: true})
	require.ErrorIs(t, err, ErrAnyServer)
}
