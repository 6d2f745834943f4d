package pki

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// pulling is a setup with a syncer in its cluster. The names are as long as a certificate permits.
const pulling = `spec:
  external: {hostname: kcp.example.com}
  rootShard: {virtualWorkspaceURL: "https://root.example.com:6443"}
  workloads: {clusters: [{name: edge, context: edge, syncMode: Pull}, {name: LONG, context: long, syncMode: Pull}]}
`

// A component has the certificate of its own user, and not that of an earlier component with its ID.
func TestEndUsers(t *testing.T) {
	long := strings.Repeat("x", 40)
	tp, s := issued(t, strings.Replace(pulling, "LONG", long, 1))
	cn := func(s *State, id topology.ID) string {
		return certOf(t, s.Leaves[KeyOf(tp.Component(id), topology.CertClient)]).Subject.CommonName
	}
	require.Equal(t, "kcpctl:syncer:demo:edge", cn(s, "cluster/edge"))

	ended := s.clone()
	ended.EndUsers("cluster/edge", topology.IDOf(topology.Physical, long))
	require.Nil(t, s.Users)
	r := ensure(t, tp, ended, now())
	require.Regexp(t, `^kcpctl:syncer:demo:edge:[a-z0-9]{8}$`, cn(r.State, "cluster/edge"))
	require.Len(t, cn(r.State, topology.IDOf(topology.Physical, long)), maxCommonName)
	require.Contains(t, r.Changes[0].Reason, "its common name changed")
	require.Equal(t, 2, r.Renewed())
	require.Equal(t, "kcpctl:controller:demo", cn(r.State, "workloads/controller"))
	require.Empty(t, ensure(t, tp, r.State, now()).Changes)
	require.Empty(t, r.State.User(tp.Root()), "it is not a user")

	again := r.State.clone()
	again.EndUsers("cluster/edge")
	require.NotEqual(t, r.State.Users["cluster/edge"], again.Users["cluster/edge"])
}

// Users are stored and imported with the authorities.
func TestUsersAreStored(t *testing.T) {
	tp, s := issued(t, strings.Replace(pulling, "LONG", "long", 1))
	s.EndUsers("cluster/edge")
	decoded, err := Decode(Encode(s))
	require.NoError(t, err)
	require.Equal(t, s.Users, decoded.Users)

	store := DirectoryStore(filepath.Join(t.TempDir(), "pki"))
	_, err = store.Load(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Save(t.Context(), s))
	loaded, err := store.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.Users, loaded.Users)
	require.FileExists(t, filepath.Join(store.dir, "ca", "users.json"))

	imported, _, err := Import(&State{}, s, now())
	require.NoError(t, err)
	require.Equal(t, s.User(tp.Component("cluster/edge")), imported.User(tp.Component("cluster/edge")))
	later := s.clone()
	later.EndUsers("cluster/edge", "agent/widgets")
	imported, _, err = Import(later, s, now())
	require.NoError(t, err)
	require.Equal(t, later.Users, imported.Users, "a backup does not bring a user back")

	for _, damaged := range []string{"{", `{"cluster/edge": ""}`, `{"cluster/edge": "a:b"}`} {
		data := Encode(s)
		data["users.json"] = []byte(damaged)
		_, err := Decode(data)
		require.ErrorContains(t, err, "users.json: ")
	}
}
