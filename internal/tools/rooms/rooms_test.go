package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// onlyIn has the packages that only some packages may import, and the reasons.
var onlyIn = []struct {
	imported string
	by       []string
	why      string
}{
	{"github.com/spf13", []string{"cmd"}, "flags and configuration are read in one place"},
	{"k8s.io/client-go/dynamic", []string{"internal/client", "internal/runtime/kube", "internal/workload"}, "kube talks to clusters, kcp to kcp, workload to both"},
	{"k8s.io/client-go/rest", []string{"internal/client", "internal/runtime/kube", "internal/workload"}, "kube talks to clusters, kcp to kcp, workload to both"},
	{"k8s.io/apiextensions-apiserver", []string{"internal/workload"}, "schemas are compared in one place"},
	{"k8s.io/client-go/kubernetes", nil, "the typed clientset makes every start slower"},
	{"k8s.io/client-go/tools/clientcmd", []string{"internal/client/cluster", "internal/runtime/kube", "internal/desired/kubeconfig", "internal/workload/server/connect"}, "kubeconfigs are read and written in one place"},
	{"k8s.io/cli-runtime", []string{"cmd"}, "results are printed in one place"},
	{"k8s.io/cli-runtime/pkg/genericclioptions", nil, "it makes kcpctl 14 MB larger and every start slower"},
	{"github.com/cloudflare/cfssl", []string{"internal/desired/pki"}, "certificates are made in one place"},
	{"golang.org/x/term", []string{"cmd/ui"}, "terminals are ui's"},
	{"os/exec", []string{"cmd", "internal/runtime/local"}, "nothing else starts processes"},
	{"github.com/shirou/gopsutil", []string{"internal/runtime/local/process"}, "processes are listed in one place"},
}

// pure packages may not import impure ones: their results depend only on their arguments.
var (
	pure = []string{
		"internal/api", "internal/client/ready", "internal/desired/diff", "internal/desired/operator", "internal/desired/plan",
		"internal/desired/render", "internal/desired/topology", "internal/file/importer", "internal/kit/dag", "internal/kit/format",
		"internal/workload/apis/guard", "internal/workload/apis/lcd", "internal/workload/apis/negotiate", "internal/workload/apis/served",
		"internal/workload/placement/fleet", "internal/workload/placement/schedule", "internal/workload/placement/splitter",
	}
	impure = []string{"net/http", "os/exec", "k8s.io/client-go/rest"}
)

// apart has packages on which a package must not depend, although their room would allow it.
var apart = map[string][]string{
	// The servers of workloads run in other clusters: they know no setup.
	"internal/workload":              {"internal/desired", "internal/file", "internal/client"},
	"internal/api/v1alpha1":          {"internal"},
	"internal/desired/topology":      {"internal/desired/pki", "internal/desired/render"},
	"internal/desired/pki":           {"internal/desired/render"},
	"internal/desired/agent":         {"internal/desired/pki", "internal/desired/render"},
	"internal/desired/operator":      {"internal/desired/pki", "internal/desired/render"},
	"internal/file/importer":         {"internal/desired/pki", "internal/desired/render"},
	"internal/engine/agentstate":     {"internal/file", "internal/desired/render"},
	"internal/engine/check":          {"internal/engine/run"},
	"internal/runtime/kube":          {"internal/runtime/local", "internal/runtime/workspace"},
	"internal/runtime/local":         {"internal/runtime/kube", "internal/runtime/workspace"},
	"internal/runtime/workspace":     {"internal/runtime/kube", "internal/runtime/local"},
	"internal/runtime/local/ports":   {"internal/desired/pki", "internal/desired/render", "internal/engine"},
	"internal/runtime/local/process": {"internal/desired", "internal/engine"},
	"cmd/ui":                         {"internal/runtime"},
}

// kubeParts are the packages of kube with one job each. They build on internal/client/cluster, and do not know each
// other.
var kubeParts = []string{
	"internal/runtime/kube/adopt", "internal/runtime/kube/facts", "internal/runtime/kube/inventory", "internal/runtime/kube/lease", "internal/runtime/kube/logs", "internal/runtime/kube/portforward",
	"internal/runtime/kube/physical", "internal/runtime/kube/observe",
}

// kubernetesTypes are the packages of k8s.io/api that kcpctl links. Each one adds all its types with their methods: 50
// kB to 800 kB.
var kubernetesTypes = []string{"k8s.io/api/apidiscovery/v2", "k8s.io/api/coordination/v1", "k8s.io/api/core/v1", "k8s.io/api/rbac/v1"}

// listed has all packages.
var listed = sync.OnceValues(func() ([]goPackage, error) {
	if err := readSources(); err != nil {
		return nil, err
	}
	return list(root)
})

// readSources opens what go list depends on: the go command knows only of files that the test itself opens, and a cached
// result could be older than they are.
func readSources() error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || path == filepath.Join(root, "bin")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" && d.Name() != "go.mod":
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// packages returns the packages of the rooms, by name.
func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	list, err := listed()
	require.NoError(t, err)
	all := map[string]goPackage{}
	for _, p := range list {
		if roomOf(p.Name) >= 0 {
			all[p.Name] = p
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestEveryPackageHasARoom(t *testing.T) {
	list, err := listed()
	require.NoError(t, err)
	for _, p := range list {
		other := p.Name+"/" == module || isOutside(p.Name)
		require.NotEqual(t, roomOf(p.Name) >= 0, other, "%s has no room", p.Name)
	}
}

func TestRoomsImportOnlyThoseBelow(t *testing.T) {
	for name, p := range packages(t) {
		for _, i := range p.Imports {
			own, ok := strings.CutPrefix(i, module)
			require.False(t, ok && roomOf(own) > roomOf(name), "%s imports %s, which is above", name, own)
		}
	}
}

func TestImports(t *testing.T) {
	all := packages(t)
	for name, p := range all {
		for _, rule := range onlyIn {
			for _, i := range p.Imports {
				if within(i, rule.imported) {
					// The room pkg is not a part of kcpctl.
					allowed := within(name, "pkg") || slices.ContainsFunc(rule.by, func(by string) bool { return within(name, by) })
					require.True(t, allowed, "%s imports %s: %s", name, i, rule.why)
				}
			}
		}
	}
}

func TestKubernetesTypes(t *testing.T) {
	var linked []string
	for _, dep := range packages(t)["cmd"].Deps {
		if within(dep, "k8s.io/api") {
			linked = append(linked, dep)
		}
	}
	require.ElementsMatch(t, kubernetesTypes, linked)
}

func TestPackagesApart(t *testing.T) {
	all := packages(t)
	for name, forbidden := range apart {
		found := false
		for _, p := range all {
			if !within(p.Name, name) {
				continue
			}
			found = true
			for _, dep := range p.Deps {
				rel, own := strings.CutPrefix(dep, module)
				for _, f := range forbidden {
					require.False(t, own && within(rel, f) && !within(rel, name), "%s depends on %s", p.Name, rel)
				}
			}
		}
		require.True(t, found, "no package %s", name)
	}
}

func TestKubePartsAreIndependent(t *testing.T) {
	all := packages(t)
	for _, name := range append(kubeParts, "internal/client/cluster") {
		p, ok := all[name]
		require.True(t, ok, "no package %s", name)
		for _, dep := range p.Deps {
			rel, own := strings.CutPrefix(dep, module)
			require.False(t, own && rel != name && slices.Contains(kubeParts, rel), "%s depends on %s", name, rel)
		}
	}
}

func TestPurePackages(t *testing.T) {
	all := packages(t)
	for _, dir := range pure {
		found := false
		for name, p := range all {
			if !within(name, dir) {
				continue
			}
			found = true
			for _, i := range p.Imports {
				require.NotContains(t, impure, i, "%s is pure", name)
			}
		}
		require.True(t, found, "no package %s", dir)
	}
}

func TestThePictureHasTheRooms(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	picture, _, _ := strings.Cut(string(raw), begin)
	for _, r := range rooms() {
		require.Contains(t, picture, strings.TrimPrefix(r.dir, "internal/"))
	}
}
