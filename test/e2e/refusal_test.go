//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// silentLimit is the time limit of an up that meets a silent cluster, which it waits 10 s for.
const silentLimit = time.Minute

// TestClusterRefusals makes mistakes that up must report before it writes anything. It runs nothing.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, example string
		prepare       func(t *testing.T, c *cluster) (flags []string)
		limit         time.Duration
		facts         []string
	}{
		{
			"the cluster refuses connections",
			"minimal", func(t *testing.T, c *cluster) []string { return c.at(t, deadServer(t)) },
			silentLimit, []string{"https://127.0.0.1:", "connection refused", "hint: "},
		},
		{
			"the cluster is silent",
			"minimal", func(t *testing.T, c *cluster) []string { return c.at(t, silentServer(t)) },
			silentLimit, []string{"https://127.0.0.1:", "hint: "},
		},
		{
			"the user may do nothing",
			"minimal", func(t *testing.T, c *cluster) []string { return c.as(t, newName()) },
			0, []string{"patch deployments.apps", "create pods/portforward", "hint: "},
		},
		{
			"the user may only look",
			"minimal", func(t *testing.T, c *cluster) []string {
				name := newName()
				flags := c.as(t, name)
				c.kubectl("create", "clusterrolebinding", name, "--clusterrole=view", "--serviceaccount="+name+":user").run(t.Context(), t).ok(t)
				t.Cleanup(func() { c.kubectl("delete", "clusterrolebinding", name).run(context.Background(), t).ok(t) })
				return flags
			},
			0, []string{"create namespaces", "patch deployments.apps", "hint: "},
		},
		{
			"a Secret is missing",
			"external-etcd", func(t *testing.T, c *cluster) []string { c.makeNamespace(t); return nil },
			0, []string{"/etcd-client", "Deployment/", "hint: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newCluster(t, tc.example)
			flags := tc.prepare(t, s.runtime.(*cluster))
			before := s.written(t)
			up := s.command("up", flags...)
			up.limit = tc.limit
			up.run(t.Context(), t).refused(t, 1, tc.facts...)
			require.Equal(t, before, s.written(t), "nothing was to be written")
		})
	}
}

// kubeconfigWith writes a kubeconfig that differs from the administrator's, and returns the flags to use it.
func (c *cluster) kubeconfigWith(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []string {
	t.Helper()
	all, err := clientcmd.LoadFromFile(c.kubeconfig)
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.MinifyConfig(all))
	require.NoError(t, clientcmdapi.FlattenConfig(all))
	current := all.Contexts[all.CurrentContext]
	change(all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo])
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*all, file))
	return []string{"--kubeconfig", file}
}

// at returns flags for a cluster at another address.
func (c *cluster) at(t *testing.T, address string) []string {
	t.Helper()
	return c.kubeconfigWith(t, func(cl *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cl.Server = "https://" + address })
}

// as returns flags for a user without rights: a new service account of a new namespace.
func (c *cluster) as(t *testing.T, namespace string) []string {
	t.Helper()
	other := &cluster{setup: namespace, namespace: namespace, kubeconfig: c.kubeconfig}
	other.makeNamespace(t)
	t.Cleanup(func() { other.remove(t) })
	c.kubectl("create", "serviceaccount", "user", "--namespace", namespace).run(t.Context(), t).ok(t)
	token := c.kubectl("create", "token", "user", "--namespace", namespace).run(t.Context(), t).ok(t).stdout
	return c.kubeconfigWith(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		*user = clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	})
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

// TestClusterMinimal runs examples/minimal.yaml with an image that does not exist, and corrects it. It mostly waits for
// the image, so it runs while TestClusterLife has kcp on the node.
func TestClusterMinimal(t *testing.T) {
	t.Parallel()
	s := newCluster(t, "minimal")
	step(t, "an image that does not exist", func(t *testing.T) { missesImage(t, s) })
	step(t, "the corrected file", func(t *testing.T) {
		s.write(t, s.text)
		require.Contains(t, s.up(t).stderr, "canary done")
		isReady(t, s)
		changesNothing(t, s)
	})
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// TestClusterLife runs examples/sharded.yaml through its life cycle, through mistakes that show only while it runs, and
// through their repair.
func TestClusterLife(t *testing.T) {
	t.Parallel()
	s := newCluster(t, "sharded")
	s.lives(t, begins(), refuses(), goesOn())
}

// refuses are the parts in which up refuses to change a running setup, and succeeds with the flags that it names.
func refuses() (all []part) {
	for _, tc := range refusals() {
		all = append(all, part{tc.name, func(t *testing.T, s *setup) {
			tc.breakIt(t, s)
			before := s.written(t)
			s.kcpctl(t, "up").refused(t, tc.code, tc.facts...)
			require.Equal(t, before, s.written(t), "nothing was to be written")
			s.up(t, tc.accept...)
			changesNothing(t, s)
		}})
	}
	return all
}

// refusal is a reason for which up refuses to change a running setup.
type refusal struct {
	name    string
	breakIt func(t *testing.T, s *setup)
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
			func(t *testing.T, s *setup) {
				d := object("apps/v1", "Deployment", s.name+"-root")
				d["spec"] = map[string]any{"revisionHistoryLimit": 7}
				s.runtime.(*cluster).apply(t, "gitops", d)
			},
			4, []string{"OBJECT", "FIELD", "MANAGER", "-root", "spec.revisionHistoryLimit", "gitops", "--force-conflicts"},
			[]string{"--force-conflicts"},
		},
		{
			"the inventory remembers another cluster",
			func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				var data map[string][]byte
				get := c.kubectl("get", "secret", s.name+"-inventory", "--namespace", s.name, "--output", "jsonpath={.data}")
				require.NoError(t, json.Unmarshal([]byte(get.run(t.Context(), t).ok(t).stdout), &data))
				patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"clusters.json": otherUID(t, data["clusters.json"])}})
				require.NoError(t, err)
				c.kubectl("patch", "secret", s.name+"-inventory", "--namespace", s.name, "--patch", string(patch)).run(t.Context(), t).ok(t)
			},
			1, otherCluster, []string{"--allow-other-cluster", "--forget-cluster", "default-11111111"},
		},
		{
			"this machine remembers another cluster",
			func(t *testing.T, s *setup) {
				file := filepath.Join(s.runtime.(*cluster).home, "kcpctl", "clusters", s.name+".json")
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
