package backup_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/live"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// shard is a running shard with LogicalClusters and Workspaces.
type shard struct {
	*fakeapi.Server
	// fails are the paths whose requests fail, with the code.
	fails map[string]int
	// meanwhile is called before a request deletes an object.
	meanwhile func()
}

func pathOf(api kcpapi.API) string {
	return "apis/" + api.Group + "/" + api.Version + "/" + api.Resource
}

func (s *shard) add(api kcpapi.API, cluster, name, uid string, notes map[string]string, spec map[string]any) {
	o := api.New(name)
	o.SetUID(types.UID(uid))
	all := map[string]string{kcpapi.AnnotationCluster: cluster}
	maps.Copy(all, notes)
	o.SetAnnotations(all)
	o.Object["spec"] = spec
	o.Object["status"] = map[string]any{"URL": "https://kcp.example.com/clusters/" + all[kcpapi.AnnotationPath],
		"identityHash": "hash"}
	s.Put(cluster, pathOf(api), o)
}

// get returns an object, or nil.
func (s *shard) get(api kcpapi.API, cluster, name string) *unstructured.Unstructured {
	return s.Get(cluster, pathOf(api), "", name)
}

// cluster adds a logical cluster, which belongs to a Workspace in root with a UID.
func (s *shard) cluster(id, name, uid string) {
	s.add(kcpapi.LogicalCluster, id, "cluster", "uid-of-"+id, map[string]string{
		kcpapi.AnnotationPath: "root:" + name, "internal.tenancy.kcp.io/type": "root:org:universal",
	}, map[string]any{"owner": map[string]any{"cluster": "root", "name": name, "resource": "workspaces", "uid": uid}})
}

// workspace adds a Workspace in root.
func (s *shard) workspace(name, uid, cluster string) {
	s.add(kcpapi.Workspace, "root", name, uid, nil, map[string]any{"cluster": cluster})
}

// ServeHTTP implements http.Handler. All Workspaces are requested with the identity of their API.
func (s *shard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code := s.fails[r.URL.Path]; code != 0 {
		http.Error(w, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Status", "code": %d, "reason": "Forbidden", "status": "Failure"}`, code), code)
		return
	}
	if r.Method == http.MethodDelete && s.meanwhile != nil {
		s.meanwhile()
	}
	r.URL.Path, _, _ = strings.Cut(r.URL.Path, ":hash")
	s.Server.ServeHTTP(w, r)
}

// fleet is a running installation with the shards root and alpha.
type fleet struct {
	*backup.Repair
	root, alpha *shard
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	w := newWorld(t)
	f := &fleet{}
	urls := map[topology.ID]string{}
	start := func(id topology.ID) *shard {
		s := &shard{Server: fakeapi.NewMemory(string(id)), fails: map[string]int{}}
		s.Guard("uid", "resourceVersion")
		server := httptest.NewServer(s)
		t.Cleanup(server.Close)
		urls[id] = server.URL
		return s
	}
	f.root, f.alpha = start("root-shard"), start("shard/alpha")
	export := kcpapi.APIExport
	export.Version = "v1alpha1"
	f.root.add(export, "root", "tenancy.kcp.io", "1", nil, nil)
	f.root.add(kcpapi.LogicalCluster, "root", "cluster", "2", map[string]string{kcpapi.AnnotationPath: "root"}, nil)
	for _, name := range []string{"root", "alpha"} {
		f.root.add(kcpapi.Shard, "root", name, "of-"+name, nil, nil)
	}
	f.Repair = &backup.Repair{
		Reader: &live.Reader{Topology: w.top, Connect: func(c *topology.Component) (*kcp.Client, error) {
			return kcp.New(kcp.Options{URL: urls[c.ID()]}), nil
		}},
		Runtime: w.memory, Observe: func(run.Event) {}, Now: time.Now,
	}
	return f
}

// found are the reasons and paths of what does not fit together.
func (f *fleet) found(t *testing.T) []string {
	t.Helper()
	r, err := f.Reader.Find(t.Context())
	require.NoError(t, err)
	f.Shown = r.Tears
	var out []string
	for _, tear := range r.Tears {
		out = append(out, fmt.Sprintf("%s %s", tear.Reason, tear.Path))
	}
	return out
}

// torn is a fleet with a workspace that fits, one without its Workspace, and one without its logical cluster.
func torn(t *testing.T) *fleet {
	f := newFleet(t)
	f.root.workspace("fine", "w1", "id1")
	f.alpha.cluster("id1", "fine", "w1")
	f.alpha.cluster("id2", "orphan", "w2")
	f.root.workspace("missing", "w3", "id3")
	require.Equal(t, []string{"WithoutLogicalCluster root:missing", "WithoutWorkspace root:orphan"}, f.found(t))
	return f
}

func TestRepair(t *testing.T) {
	f := torn(t)
	require.NoError(t, f.Run(t.Context()), "nothing is chosen")
	require.Len(t, f.found(t), 2)

	f.Actions = []backup.Action{backup.Adopt, backup.DeleteMissing}
	require.NoError(t, f.Run(t.Context()))
	require.Empty(t, f.found(t))
	w := f.root.get(kcpapi.Workspace, "root", "orphan")
	require.Equal(t, map[string]any{
		"URL": "https://kcp.example.com/clusters/root:orphan", "cluster": "id2",
		"type": map[string]any{"path": "root:org", "name": "universal"},
	}, w.Object["spec"])
	require.Equal(t, "alpha", w.GetAnnotations()["core.kcp.io/shard"])
	require.Equal(t, []string{"core.kcp.io/logicalcluster"}, w.GetFinalizers(),
		"or kcp would not delete the logical cluster with it")
	require.Nil(t, f.root.get(kcpapi.Workspace, "root", "missing"))
	require.NotNil(t, f.root.get(kcpapi.Workspace, "root", "fine"))
}

func TestRepairDeletesOrphans(t *testing.T) {
	f := torn(t)
	f.Actions = []backup.Action{backup.DeleteOrphan}
	require.NoError(t, f.Run(t.Context()))
	require.Equal(t, []string{"WithoutLogicalCluster root:missing"}, f.found(t))
	require.Nil(t, f.alpha.get(kcpapi.LogicalCluster, "id2", "cluster"))
	require.NotNil(t, f.alpha.get(kcpapi.LogicalCluster, "id1", "cluster"))
}

// An orphan shows a sign of life between the look and the deletion, if only in its status: it stays.
func TestRepairLeavesWhatChanges(t *testing.T) {
	f := torn(t)
	f.Actions = []backup.Action{backup.DeleteOrphan}
	f.alpha.meanwhile = func() {
		f.alpha.Patch("id2", pathOf(kcpapi.LogicalCluster), "", "cluster", map[string]any{"status": map[string]any{"phase": "Initializing"}})
	}
	err := f.Run(t.Context())
	require.ErrorContains(t, err, "root:orphan: LogicalCluster/cluster in id2 was changed after this run read it")
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.NotNil(t, f.alpha.get(kcpapi.LogicalCluster, "id2", "cluster"))
}

// An adoption that ended after the Workspace was created continues.
func TestAdoptionContinues(t *testing.T) {
	f := torn(t)
	f.Actions = []backup.Action{backup.Adopt}
	owner := "/clusters/id2/" + pathOf(kcpapi.LogicalCluster) + "/cluster"
	f.alpha.fails[owner] = http.StatusForbidden
	require.ErrorContains(t, f.Run(t.Context()), "root:orphan")
	require.NotNil(t, f.root.get(kcpapi.Workspace, "root", "orphan"))
	delete(f.alpha.fails, owner)
	require.Equal(t, []string{"WithoutLogicalCluster root:missing", "WithoutWorkspace root:orphan"}, f.found(t))
	require.NoError(t, f.Run(t.Context()))
	require.Equal(t, []string{"WithoutLogicalCluster root:missing"}, f.found(t))
}

// Only what the user has seen is repaired, and only if its name is free.
func TestRepairLeavesOthersAlone(t *testing.T) {
	f := torn(t)
	f.Actions = []backup.Action{backup.Adopt, backup.DeleteMissing}
	f.alpha.cluster("id4", "later", "w4")
	require.NoError(t, f.Run(t.Context()))
	require.Equal(t, []string{"WithoutWorkspace root:later"}, f.found(t))

	f.root.workspace("later", "w5", "id5")
	f.root.cluster("id5", "later", "w5")
	require.Equal(t, []string{"WithoutWorkspace root:later"}, f.found(t))
	require.ErrorContains(t, f.Run(t.Context()), "another Workspace has its name")
}

// A logical cluster that two shards have, or that is being moved, is not an orphan that may be deleted.
func TestRepairDeletesNoCopy(t *testing.T) {
	f := torn(t)
	f.Actions = []backup.Action{backup.DeleteOrphan}
	f.root.cluster("id2", "orphan", "w2")
	require.Equal(t, []string{
		"OnTwoShards root:orphan", "WithoutLogicalCluster root:missing", "WithoutWorkspace root:orphan",
	}, f.found(t))
	require.NoError(t, f.Run(t.Context()))
	require.NotNil(t, f.root.get(kcpapi.LogicalCluster, "id2", "cluster"))
	require.NotNil(t, f.alpha.get(kcpapi.LogicalCluster, "id2", "cluster"))

	f.root.Delete("id2", pathOf(kcpapi.LogicalCluster), "", "cluster")
	f.alpha.Patch("id2", pathOf(kcpapi.LogicalCluster), "", "cluster", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"internal.kcp.io/migrating": "root:another-migration"}},
	})
	f.found(t)
	err := f.Run(t.Context())
	require.ErrorContains(t, err, "root:orphan is being moved to another shard; nothing was changed")
	require.NotNil(t, f.alpha.get(kcpapi.LogicalCluster, "id2", "cluster"))
}

// A shard that does not answer, or does not serve Workspaces, could have what is not found.
func TestAllShardsMustAnswer(t *testing.T) {
	f := torn(t)
	for _, path := range []string{
		"/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters", "/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces:hash",
	} {
		for _, code := range []int{http.StatusForbidden, http.StatusNotFound} {
			f.alpha.fails = map[string]int{path: code}
			_, err := f.Reader.Find(t.Context())
			require.ErrorContains(t, err, "shard/alpha", "%s %d", path, code)
		}
	}
	f.alpha.fails = nil
	f.root.add(kcpapi.Shard, "root", "beta", "of-beta", nil, nil)
	require.Equal(t, []string{"WithoutWorkspace root:orphan"}, f.found(t),
		"the other logical cluster may be on a shard that the setup does not have; the Workspaces of root are known")
}

// What both readings find was not only in between: kcp creates the two objects one after the other.
func TestWhatIsInBetweenIsNoTear(t *testing.T) {
	f := torn(t)
	f.Reader.Pause = time.Millisecond
	reads := 0
	connect := f.Reader.Connect
	f.Reader.Connect = func(c *topology.Component) (*kcp.Client, error) {
		if reads++; reads == 3 { // the second reading begins
			f.root.workspace("orphan", "w2", "id2")
		}
		return connect(c)
	}
	require.Equal(t, []string{"WithoutLogicalCluster root:missing"}, f.found(t))
}
