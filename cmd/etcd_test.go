package cmd

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeetcd"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const overTwoClusters = topologytest.Header + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: beta, cluster: us, url: "https://beta.example.com:6443"}]
`

// withMembers is a runtime that runs the members of etcds.
type withMembers struct {
	*fakeruntime.Runtime
	etcds.MemberRuntime
}

// typer returns a function that runs a command against a runtime with one etcd, and returns its output.
func typer(t *testing.T, rt *fakeruntime.Runtime, etcd etcds.MemberRuntime, path string) func(string) (string, error) {
	return func(line string) (string, error) {
		env, stdout, _ := fakeEnv()
		env.Now = time.Now
		env.Open = func(top *topology.Topology, _ kube.Options) (run.Runtime, error) {
			rt.Use(top)
			return withMembers{rt, etcd}, nil
		}
		c := newRootCmd(env)
		c.SetArgs(append(strings.Fields(line), "-f", path))
		err := c.ExecuteContext(t.Context())
		return stdout.String(), err
	}
}

// A list without what is on a cluster that cannot be reached names the cluster, and has an exit code of its own.
func TestListsWithoutACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, overTwoClusters, overTwoClusters)
		root := fakeetcd.New(t, topologytest.Build(t, overTwoClusters).Component("etcd/root"), rt.PKI())
		rt.Lost = []plan.Unreachable{{Cluster: "us", Err: errors.New("no answer")}}
		typed := typer(t, rt, root, path)
		out, err := typed("etcd members -o json")
		require.Equal(t, clierr.Unknown, clierr.Code(err))
		require.EqualError(t, err, "the members are not known of clusters that cannot be reached: us")
		var members partialList[etcds.EtcdMember]
		require.NoError(t, json.Unmarshal([]byte(out), &members))
		require.Equal(t, []string{"us"}, members.Unreachable)
		require.Len(t, members.Items, 1)
		require.Equal(t, topology.ID("etcd/root"), members.Items[0].Etcd)

		out, err = typed("etcd members")
		require.Equal(t, clierr.Unknown, clierr.Code(err))
		require.Contains(t, out, "demo-etcd-root-0")
		out, err = typed("etcd members root -o json")
		require.NoError(t, err, "it lacks nothing")
		require.NotContains(t, out, "unreachable")

		out, err = typed("top workspaces --shard beta -o json")
		require.Equal(t, clierr.Unknown, clierr.Code(err))
		var workspaces partialList[usage.Workspace]
		require.NoError(t, json.Unmarshal([]byte(out), &workspaces))
		require.Equal(t, []string{"us"}, workspaces.Unreachable)
		require.Empty(t, workspaces.Items)
	})
}

// One shard that cannot be read does not hide the workspaces of the others.
func TestTopWorkspacesWithoutAShard(t *testing.T) {
	const text = topologytest.Header + `spec:
  shards: [{name: alpha, etcd: {external: {endpoints: ["http://etcd:2379"]}}}]
`
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, text, text)
		root := fakeetcd.New(t, topologytest.Build(t, text).Component("etcd/root"), rt.PKI())
		typed := typer(t, rt, root, path)
		out, err := typed("top workspaces -o json")
		require.Equal(t, clierr.Unknown, clierr.Code(err))
		require.EqualError(t, err, "the workspaces are not known of shards that cannot be read: shard/alpha has an external etcd")
		require.Contains(t, out, `"kind": "WorkspaceUsageList"`)
		_, err = typed("top workspaces --shard root")
		require.NoError(t, err)
	})
}

func TestWithReachable(t *testing.T) {
	top := topologytest.Build(t, overTwoClusters)
	in, without := withReachable(top.Shards(), nil)
	require.Equal(t, top.Shards(), in)
	require.Empty(t, without)
	in, without = withReachable(top.Components, []plan.Unreachable{{Cluster: "us"}, {Cluster: "asia"}})
	require.Equal(t, []string{"us"}, without, "once, and only if something is there")
	require.NotContains(t, in, top.Component("shard/beta"))
	require.Contains(t, in, top.Root())
	require.NoError(t, unknownOn("members", nil))
}
