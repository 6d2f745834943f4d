package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterLife runs examples/sharded.yaml with one shard less through its life cycle, through mistakes that show only
// while it runs, and through their repair.
func TestClusterLife(t *testing.T) {
	t.Parallel()
	s := framework.NewCluster(t, "sharded")
	require.Contains(t, s.Text, "  - name: beta\n")
	s.Text = strings.Replace(s.Text, "  - name: beta\n", "", 1)
	s.Write(t, s.Text)
	framework.Lives(t, s, framework.Starts(), framework.Serves(), refuses(), framework.Survives(), framework.Leaves())
}

// refuses are the parts in which up refuses to change a running setup, and succeeds with the flags that it names.
func refuses() (all []framework.Part) {
	for _, tc := range refusals() {
		all = append(all, framework.Part{Name: tc.name, Do: func(t *testing.T, s *framework.Setup) {
			tc.breakIt(t, s)
			before := s.Written(t)
			s.Kcpctl(t, "up").Refused(t, tc.code, tc.facts...)
			require.Equal(t, before, s.Written(t), "nothing was to be written")
			s.Up(t, append(tc.accept, "--skip-canary")...)
		}})
	}
	return append(all, framework.Part{Name: "up has repaired all of it", Do: framework.ChangesNothing})
}

// refusal is a reason for which up refuses to change a running setup.
type refusal struct {
	name    string
	breakIt func(t *testing.T, s *framework.Setup)
	code    int
	facts   []string
	// accept are the flags with which up succeeds nevertheless.
	accept []string
}

func refusals() []refusal {
	otherCluster := []string{"11111111-", "hint: ", "--allow other-cluster"}
	return []refusal{
		{
			"a field has another manager",
			func(t *testing.T, s *framework.Setup) {
				d := framework.Object("apps/v1", "Deployment", s.Name+"-root")
				d["spec"] = map[string]any{"revisionHistoryLimit": 7}
				s.Runtime.(*framework.Cluster).Apply(t, "gitops", d)
			},
			4, []string{"OBJECT", "FIELD", "MANAGER", "-root", "spec.revisionHistoryLimit", "gitops", "--force-conflicts"},
			[]string{"--force-conflicts"},
		},
		{
			"the inventory remembers another cluster",
			func(t *testing.T, s *framework.Setup) {
				c := s.Runtime.(*framework.Cluster)
				var data map[string][]byte
				get := c.Kubectl("get", "secret", s.Name+"-inventory", "--namespace", s.Name, "--output", "jsonpath={.data}")
				require.NoError(t, json.Unmarshal([]byte(get.Run(t.Context(), t).OK(t).Stdout), &data))
				patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"clusters.json": otherUID(t, data["clusters.json"])}})
				require.NoError(t, err)
				c.Kubectl("patch", "secret", s.Name+"-inventory", "--namespace", s.Name, "--patch", string(patch)).Run(t.Context(), t).OK(t)
			},
			1, otherCluster, []string{"--allow", "other-cluster", "--forget-cluster", "default-11111111"},
		},
		{
			"this machine remembers another cluster",
			func(t *testing.T, s *framework.Setup) {
				file := filepath.Join(s.Runtime.(*framework.Cluster).Home, "kcpctl", "clusters", s.Name+".json")
				raw, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, otherUID(t, raw), 0o600))
			},
			1, otherCluster, []string{"--allow", "other-cluster"},
		},
	}
}

// otherUID replaces the UID in a list of clusters.
func otherUID(t *testing.T, raw []byte) []byte {
	t.Helper()
	var clusters []map[string]any
	require.NoError(t, json.Unmarshal(raw, &clusters))
	require.Len(t, clusters, 1)
	require.NotEmpty(t, clusters[0]["uid"])
	clusters[0]["uid"] = "11111111-1111-1111-1111-111111111111"
	raw, err := json.Marshal(clusters)
	require.NoError(t, err)
	return raw
}
