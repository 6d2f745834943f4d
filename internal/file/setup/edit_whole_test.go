package setup

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Edits of every valid file leave the rest unchanged, byte for byte.
func TestEditsLeaveTheRestAlone(t *testing.T) {
	for name, data := range valid(t) {
		t.Run(name, func(t *testing.T) {
			f := read(t, string(data))
			added, err := f.AddShard(v1alpha1.Shard{Name: "added-now", ShardSpec: v1alpha1.ShardSpec{
				URL: "https://added.example.com", Etcd: &v1alpha1.Etcd{Embedded: &v1alpha1.EmbeddedEtcd{}},
			}})
			require.NoError(t, err)
			require.NotEmpty(t, inserted(t, f.Data, added.Data))
			back, err := added.RemoveShard("added-now")
			require.NoError(t, err)
			if len(f.Setup.Spec.Shards) > 0 {
				require.Empty(t, cmp.Diff(string(f.Data), string(back.Data)), "what was added can be taken away again")
			}

			added, err = f.AddAgent(v1alpha1.Agent{Name: "added-now", Workspace: "root:added", PublishedResources: []v1alpha1.PublishedResource{
				agent.Propose(agent.Proposal{Group: "example.com", Kind: "Added", Plural: "addeds", Versions: []string{"v1"}, SecretPath: "spec.secret"}),
			}})
			require.NoError(t, err)
			require.NotEmpty(t, inserted(t, f.Data, added.Data))
			back, err = added.RemoveAgent("added-now")
			require.NoError(t, err)
			if len(f.Setup.Spec.Agents) > 0 {
				require.Empty(t, cmp.Diff(string(f.Data), string(back.Data)), "what was added can be taken away again")
			}

			added, err = f.AddCluster(v1alpha1.WorkloadCluster{Name: "added-now", Context: "added", Labels: map[string]string{"region": "eu"}})
			require.NoError(t, err)
			require.NotEmpty(t, inserted(t, f.Data, added.Data))
			cordoned, err := added.CordonCluster("added-now", true)
			require.NoError(t, err)
			require.Contains(t, inserted(t, added.Data, cordoned.Data), "unschedulable: true")
			back, err = added.RemoveCluster("added-now")
			require.NoError(t, err)
			if w := f.Setup.Spec.Workloads; w != nil && len(w.Clusters) > 0 {
				require.Empty(t, cmp.Diff(string(f.Data), string(back.Data)), "what was added can be taken away again")
			}
		})
	}
}

// inserted is the text that an edit added, in one place or, with a comma, in two.
func inserted(t *testing.T, before, after []byte) string {
	t.Helper()
	n := 0
	for n < len(before) && before[n] == after[n] {
		n++
	}
	rest := before[n:]
	more, ok := bytes.CutSuffix(after[n:], rest)
	if !ok {
		more, ok = bytes.CutPrefix(after[n:], []byte(","))
	}
	require.True(t, ok, "%s", cmp.Diff(string(before), string(after)))
	return string(more)
}

func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "kcp.yaml"), filepath.Join(dir, "link.yaml")
	require.NoError(t, os.WriteFile(path, []byte(head), 0o640))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.Symlink("kcp.yaml", link))
	f, err := Load(link, nil)
	require.NoError(t, err)
	edited, err := f.SetVersion("v0.32.2")
	require.NoError(t, err)
	require.NoError(t, f.Rewrite(link, edited))

	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(edited.Data), string(got))
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	info, err = os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing is left behind")

	err = f.Rewrite(link, edited)
	require.ErrorContains(t, err, "link.yaml was changed")
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.ErrorContains(t, f.Rewrite(Stdin, edited), "a setup from stdin cannot be edited")
}

func FuzzEdit(f *testing.F) {
	for _, data := range valid(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("kcp.yaml", data)
		if err != nil {
			return
		}
		added, err := file.AddShard(v1alpha1.Shard{Name: "added-now"})
		if err != nil {
			return // refused
		}
		require.Len(t, added.Setup.Spec.Shards, len(file.Setup.Spec.Shards)+1)
		back, err := added.RemoveShard("added-now")
		if err != nil {
			return
		}
		require.Empty(t, cmp.Diff(file.Setup, back.Setup, cmpopts.EquateEmpty()))
	})
}
