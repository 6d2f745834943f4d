package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A version is written twice, in the table and in the module that pins it; they must not part.
func TestSetsAgreeWithTheirModules(t *testing.T) {
	for _, s := range sets() {
		t.Run(s.name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("build", s.name, "go.mod"))
			require.NoError(t, err)
			var tools, required []string
			for line := range strings.Lines(string(content)) {
				switch fields := strings.Fields(line); {
				case len(fields) == 0:
				case fields[0] == "tool" && len(fields) == 2 && fields[1] != "(":
					tools = append(tools, fields[1])
				case len(fields) == 1 && strings.Contains(fields[0], "/"):
					tools = append(tools, fields[0])
				case slices.Contains(fields, s.version) && !slices.Contains(fields, "=>"):
					required = append(required, fields...)
				}
			}
			var packages []string
			for _, b := range s.binaries {
				if b.pkg == "." {
					return // our own
				}
				packages = append(packages, b.pkg)
				require.True(t, slices.ContainsFunc(required, func(module string) bool {
					return strings.Contains(module, "/") && strings.HasPrefix(b.pkg, module)
				}), "go.mod does not require %s at %s", b.pkg, s.version)
			}
			require.ElementsMatch(t, tools, packages)
		})
	}
}

func TestOutputIsWhatGoNamesIt(t *testing.T) {
	for pkg, want := range map[string]string{
		"k8s.io/kubernetes/cmd/kubelet": "kubelet",
		"go.etcd.io/etcd/server/v3":     "server",
		"go.etcd.io/etcd/etcdctl/v3":    "etcdctl",
		"github.com/coredns/coredns":    "coredns",
		".":                             "name",
	} {
		require.Equal(t, want, binary{name: "name", pkg: pkg}.output())
	}
}

func TestKcpSetsAreKeyedByVersionOnce(t *testing.T) {
	require.Equal(t, "kcp-v0.32.3", kcpSet("v0.32.3").key())
	require.Equal(t, "etcd-v3.6.16", etcdSet().key())
	require.Contains(t, kcpSet("v0.32.3").stamps, "k8s.io/component-base/version.gitVersion=v1.36.0+kcp-v0.32.3")
	require.Contains(t, kubernetesSet().stamps, "k8s.io/client-go/pkg/version.gitMinor=36")
}

func TestBuildLeavesWhatIsThere(t *testing.T) {
	bed := &testbed{cache: t.TempDir(), log: newProgress(t.Output())}
	dir := bed.binDir(etcdSet())
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.Equal(t, []string{"etcd", "etcdctl"}, missing(dir, etcdSet().names()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o755))
	require.Equal(t, []string{"etcdctl"}, missing(dir, etcdSet().names()))
	require.NoError(t, bed.build(t.Context(), etcdSet(), "etcd"))
}
