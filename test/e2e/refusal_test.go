package e2e

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// silentLimit is the time limit of an up that meets a silent cluster, which it waits 10 s for.
const silentLimit = time.Minute

// TestClusterRefusals makes mistakes that up must report before it writes anything. It runs nothing.
func TestClusterRefusals(t *testing.T) {
	for _, tc := range []struct {
		name, example string
		prepare       func(t *testing.T, c *framework.Cluster) (flags []string)
		limit         time.Duration
		facts         []string
	}{
		{
			"the cluster refuses connections",
			"minimal", func(t *testing.T, c *framework.Cluster) []string { return at(t, c, deadServer(t)) },
			silentLimit, []string{"https://127.0.0.1:", "connection refused", "hint: "},
		},
		{
			"the cluster is silent",
			"minimal", func(t *testing.T, c *framework.Cluster) []string { return at(t, c, silentServer(t)) },
			silentLimit, []string{"https://127.0.0.1:", "hint: "},
		},
		{
			"the user may do nothing",
			"minimal", func(t *testing.T, c *framework.Cluster) []string { return c.As(t, framework.NewName()) },
			0, []string{"patch deployments.apps", "create pods/portforward", "hint: "},
		},
		{
			"the user may only look",
			"minimal", func(t *testing.T, c *framework.Cluster) []string {
				name := framework.NewName()
				flags := c.As(t, name)
				c.Kubectl("create", "clusterrolebinding", name, "--clusterrole=view", "--serviceaccount="+name+":user").Run(t.Context(), t).OK(t)
				t.Cleanup(func() { c.Kubectl("delete", "clusterrolebinding", name).Run(context.Background(), t).OK(t) })
				return flags
			},
			0, []string{"create namespaces", "patch deployments.apps", "hint: "},
		},
		{
			"a Secret is missing",
			"external-etcd", func(t *testing.T, c *framework.Cluster) []string { c.MakeNamespace(t); return nil },
			0, []string{"/etcd-client", "Deployment/", "hint: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := framework.NewCluster(t, tc.example)
			flags := tc.prepare(t, s.Runtime.(*framework.Cluster))
			before := s.Written(t)
			up := s.Command("up", flags...)
			up.Limit = tc.limit
			up.Run(t.Context(), t).Refused(t, 1, tc.facts...)
			require.Equal(t, before, s.Written(t), "nothing was to be written")
		})
	}
}

// at returns flags for a cluster at another address.
func at(t *testing.T, c *framework.Cluster, address string) []string {
	t.Helper()
	return c.KubeconfigWith(t, func(cl *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cl.Server = "https://" + address })
}

// deadServer returns an address that refuses connections.
func deadServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// silentServer returns the address of a server that accepts connections and never answers.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l.Addr().String()
}

// TestClusterMinimal runs examples/minimal.yaml with an image that does not exist, and corrects it.
func TestClusterMinimal(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	framework.Step(t, "an image that does not exist", func(t *testing.T) { missesImage(t, s) })
	framework.Step(t, "the corrected file", func(t *testing.T) {
		s.Write(t, s.Text)
		require.Contains(t, s.Up(t).Stderr, "canary done")
		framework.IsReady(t, s)
		framework.ChangesNothing(t, s)
	})
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

// TestClusterLife runs examples/sharded.yaml through its life cycle, through mistakes that show only while it runs, and
// through their repair.
func TestClusterLife(t *testing.T) {
	s := framework.NewCluster(t, "sharded")
	lives(t, s, begins(), refuses(), goesOn())
}

// refuses are the parts in which up refuses to change a running setup, and succeeds with the flags that it names.
func refuses() (all []part) {
	for _, tc := range refusals() {
		all = append(all, part{tc.name, func(t *testing.T, s *framework.Setup) {
			tc.breakIt(t, s)
			before := s.Written(t)
			s.Kcpctl(t, "up").Refused(t, tc.code, tc.facts...)
			require.Equal(t, before, s.Written(t), "nothing was to be written")
			s.Up(t, tc.accept...)
			framework.ChangesNothing(t, s)
		}})
	}
	return all
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
	otherCluster := []string{"11111111-", "hint: ", "--allow-other-cluster"}
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
			1, otherCluster, []string{"--allow-other-cluster", "--forget-cluster", "default-11111111"},
		},
		{
			"this machine remembers another cluster",
			func(t *testing.T, s *framework.Setup) {
				file := filepath.Join(s.Runtime.(*framework.Cluster).Home, "kcpctl", "clusters", s.Name+".json")
				raw, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, otherUID(t, raw), 0o600))
			},
			1, otherCluster, []string{"--allow-other-cluster"},
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
