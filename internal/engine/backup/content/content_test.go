package content_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
)

const tenancyIdentity = "0d16f2962e0a71491d6fa2cec34001134f6c03a5cd55265c0533e9b9a7346ab6"

func clusterKey(id string) string {
	return "core.kcp.io/logicalclusters/customresources/" + id + "/cluster"
}

func workspaceKey(parent, name string) string {
	return "tenancy.kcp.io/workspaces/" + tenancyIdentity + "/" + parent + "/" + name
}

func clusterObject(path, parent, name, uid string) string {
	return fmt.Sprintf(
		`{"metadata":{"annotations":{"kcp.io/path":%q}},"spec":{"owner":{"cluster":%q,"name":%q,"uid":%q}}}`,
		path,
		parent,
		name,
		uid,
	)
}

func workspaceObject(uid, scheduled, cluster string, deleting bool) string {
	deletion := ""
	if deleting {
		deletion = `"deletionTimestamp":"2026-11-26T00:00:00Z",`
	}
	return fmt.Sprintf(
		`{"metadata":{%s"uid":%q,"annotations":{"internal.tenancy.kcp.io/cluster":%q}},"spec":{"cluster":%q}}`,
		deletion,
		uid,
		scheduled,
		cluster,
	)
}

// root returns a root shard with the root workspace and the APIExport of workspaces.
func root(t require.TestingT) *content.Shard {
	s := content.NewShard("root")
	require.NoError(t, s.Add(clusterKey("root"), []byte(clusterObject("root", "", "", "")), false))
	require.NoError(t, s.Add("apis.kcp.io/apiexports/customresources/root/tenancy.kcp.io",
		[]byte(`{"status":{"identityHash":"`+tenancyIdentity+`"}}`), false))
	return s
}

// never is the time of an event that does not happen.
const never = math.MaxInt

// life is a workspace, with the times of what happens to it, in kcp's order.
type life struct {
	name, uid, cluster string
	shard              int
	// created: its Workspace exists. served: its logical cluster exists. named: the Workspace names it.
	created, served, named int
	// deleting: the Workspace is being deleted. emptied: the logical cluster is gone. gone: the Workspace is gone.
	deleting, emptied, gone int
}

// drawLife draws the life of a workspace that begins after a moment, and returns when it ends.
func drawLife(t *rapid.T, n, shards, after int) life {
	next := after
	step := func() int {
		next += rapid.IntRange(1, 4).Draw(t, "step")
		return next
	}
	l := life{
		uid: fmt.Sprintf("uid-%d", n), cluster: fmt.Sprintf("cluster%08d", n),
		shard:   rapid.IntRange(0, shards-1).Draw(t, "shard"),
		created: step(), served: step(), named: step(), deleting: never, emptied: never, gone: never,
	}
	if rapid.Bool().Draw(t, "deleted") {
		l.deleting = step()
		l.emptied = step()
		l.gone = step()
	}
	return l
}

// at adds the workspace to the contents of shards whose snapshots were taken at some moments. The Workspace is on the
// root shard.
func (l life) at(t *rapid.T, shards []*content.Shard, moments []int) {
	add := func(s *content.Shard, at, moment int, key, value string) {
		if at <= moment {
			require.NoError(t, s.Add(key, []byte(value), value == ""))
		}
	}
	parent, child := moments[0], moments[l.shard]
	w, c := workspaceKey("root", l.name), clusterKey(l.cluster)
	add(shards[0], l.created, parent, w, workspaceObject(l.uid, l.cluster, "", false))
	add(shards[0], l.named, parent, w, workspaceObject(l.uid, l.cluster, l.cluster, false))
	add(shards[0], l.deleting, parent, w, workspaceObject(l.uid, l.cluster, l.cluster, true))
	add(shards[0], l.gone, parent, w, "")
	add(shards[l.shard], l.served, child, c, clusterObject("root:"+l.name, "root", l.name, l.uid))
	add(shards[l.shard], l.emptied, child, c, "")
}

// torn returns the tear that snapshots of these moments have, by the times alone.
func (l life) torn(moments []int) string {
	parent, child := moments[0], moments[l.shard]
	exists := l.created <= parent && parent < l.gone
	served := l.served <= child && child < l.emptied
	switch {
	case served && !exists:
		return string(content.WithoutWorkspace) + " " + l.cluster
	case l.named <= parent && parent < l.deleting && !served:
		return string(content.WithoutCluster) + " " + l.cluster
	}
	return ""
}

// Whatever is created and deleted while snapshots are taken, exactly what they tear is found.
func TestTears(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 4).Draw(t, "shards")
		shards := []*content.Shard{root(t)}
		moments := []int{rapid.IntRange(1, 40).Draw(t, "moment")}
		for i := 1; i < count; i++ {
			shards = append(shards, content.NewShard(fmt.Sprintf("s%d", i)))
			moments = append(moments, moments[0]+rapid.IntRange(-6, 6).Draw(t, "skew"))
		}
		var want []string
		n := 0
		for name := range rapid.IntRange(1, 6).Draw(t, "names") {
			for end := rapid.IntRange(0, 30).Draw(t, "begin"); end < 45; { // a name is used again when it is free
				l := drawLife(t, n, count, end)
				l.name = fmt.Sprintf("w%d", name)
				n++
				l.at(t, shards, moments)
				if tear := l.torn(moments); tear != "" {
					want = append(want, tear)
				}
				end = l.gone
			}
		}
		var got []string
		for _, tear := range content.Tears(shards, nil) {
			got = append(got, string(tear.Reason)+" "+tear.Cluster)
			require.NotEmpty(t, tear.Message)
			require.NotEmpty(t, tear.Effect)
			require.NotEmpty(t, tear.Repair)
		}
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got)
	})
}

// single adds objects to a root shard and to alpha, and returns the reasons of the tears.
func reasons(t *testing.T, missing []string, add func(root, alpha *content.Shard)) []string {
	t.Helper()
	r, alpha := root(t), content.NewShard("alpha")
	for _, name := range []string{"root", "alpha"} {
		require.NoError(t, r.Add("core.kcp.io/shards/"+tenancyIdentity+"/root/"+name, []byte(`{}`), false))
	}
	add(r, alpha)
	var out []string
	for _, tear := range content.Tears([]*content.Shard{r, alpha}, missing) {
		out = append(out, strings.TrimSpace(string(tear.Reason)+" "+cmp.Or(tear.Cluster, tear.Path)))
	}
	return out
}

func TestTearsBetweenShards(t *testing.T) {
	const hash = "aaaa2962e0a71491d6fa2cec34001134f6c03a5cd55265c0533e9b9a7346abcd"
	add := func(s *content.Shard, key, value string) { require.NoError(t, s.Add(key, []byte(value), value == "")) }
	both := func(root, alpha *content.Shard) {
		add(root, clusterKey("c1"), clusterObject("root:w", "root", "w", "u"))
		add(alpha, clusterKey("c1"), clusterObject("root:w", "root", "w", "u"))
		add(root, workspaceKey("root", "w"), workspaceObject("u", "c1", "c1", false))
	}
	migration := "migration.kcp.io/logicalclustermigrations/" + hash + "/root/kcpctl-c1"
	export := func(s *content.Shard) {
		add(s, "apis.kcp.io/apiexports/customresources/c9/widgets", `{"status":{"identityHash":"`+hash+`"}}`)
	}
	for name, tc := range map[string]struct {
		missing []string
		add     func(root, alpha *content.Shard)
		want    []string
	}{
		"nothing": {nil, func(root, alpha *content.Shard) {}, nil},
		"a logical cluster of the shard itself": {nil, func(_, alpha *content.Shard) {
			add(alpha, clusterKey("system:shard"), `{}`)
		}, nil},
		"on two shards": {nil, both, []string{"OnTwoShards c1"}},
		"being moved": {nil, func(root, alpha *content.Shard) {
			both(root, alpha)
			export(root)
			add(root, migration, `{"spec":{"logicalCluster":"c1"},"status":{"phase":"Migrating"}}`)
		}, []string{"BeingMoved c1"}},
		"was moved": {nil, func(root, alpha *content.Shard) {
			export(root)
			add(root, migration, `{"spec":{"logicalCluster":"c1"},"status":{"phase":"Migrating"}}`)
			add(root, migration, "")
		}, nil},
		"objects without an APIExport": {nil, func(_, alpha *content.Shard) {
			add(alpha, "example.com/widgets/"+hash+"/c1/default/w", `{}`)
		}, []string{"WithoutAPIExport example.com/widgets"}},
		"objects with an APIExport": {nil, func(root, alpha *content.Shard) {
			export(root)
			add(alpha, "example.com/widgets/"+hash+"/c1/default/w", `{}`)
		}, nil},
		"objects that were deleted": {nil, func(_, alpha *content.Shard) {
			add(alpha, "example.com/widgets/"+hash+"/c1/default/w", `{}`)
			add(alpha, "example.com/widgets/"+hash+"/c1/default/w", "")
		}, nil},
		"a shard that is not registered": {nil, func(root, _ *content.Shard) {
			add(root, "core.kcp.io/shards/"+tenancyIdentity+"/root/alpha", "")
		}, []string{"NotRegistered alpha"}},
		"a shard that is not included": {nil, func(root, _ *content.Shard) {
			add(root, "core.kcp.io/shards/"+tenancyIdentity+"/root/beta", `{}`)
		}, []string{"NotIncluded beta"}},
		"a shard that could not be read": {[]string{"beta"}, func(root, alpha *content.Shard) {
			add(root, "core.kcp.io/shards/"+tenancyIdentity+"/root/beta", `{}`)
			add(root, workspaceKey("root", "w"), workspaceObject("u", "c1", "c1", false))
			add(alpha, clusterKey("c2"), clusterObject("x:y", "c1", "y", "u2"))
			add(alpha, "example.com/widgets/"+hash+"/c1/default/w", `{}`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, reasons(t, tc.missing, tc.add)) })
	}
}

func TestEncryptedObjectsAreCounted(t *testing.T) {
	s := root(t)
	require.NoError(t, s.Add(workspaceKey("root", "w"), []byte("k8s:enc:aescbc:v1:key:…"), false))
	require.Equal(t, 1, s.Encrypted)
	require.ErrorContains(t, s.Add(clusterKey("c"), []byte("{"), false), clusterKey("c"))
}

func TestClusterOf(t *testing.T) {
	identity := strings.Repeat("ab", 32)
	for key, want := range map[string]string{
		"core/secrets/c1/default/s":                              "c1",
		"rbac.authorization.k8s.io/clusterroles/c1/admin":        "c1",
		"core.kcp.io/logicalclusters/customresources/c1/cluster": "c1",
		"apps/deployments/customresources/c1/default/web":        "c1",
		"tenancy.kcp.io/workspaces/" + identity + "/root/team":   "root",
		"/example.com/widgets/" + identity + "/c1/default/w":     "c1",
		"kcpctl.dev/owner": "",
	} {
		require.Equal(t, want, content.ClusterOf(key), key)
	}
}
