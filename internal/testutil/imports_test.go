package testutil_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/kcpctl/kcpctl/"

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// onlyIn has the packages that only some packages may import, and the reasons.
var onlyIn = []struct {
	imported string
	by       []string
	why      string
}{
	{"github.com/spf13", []string{"cmd"}, "flags and configuration are read in one place"},
	{"k8s.io/client-go/dynamic", []string{"internal/kube", "internal/kcp", "internal/workload"}, "kube talks to clusters, kcp to kcp, workload to both"},
	{"k8s.io/client-go/rest", []string{"internal/kube", "internal/kcp", "internal/workload"}, "kube talks to clusters, kcp to kcp, workload to both"},
	{"k8s.io/apiextensions-apiserver", []string{"internal/workload"}, "schemas are compared in one place"},
	{"k8s.io/client-go/kubernetes", nil, "the typed clientset makes every start slower"},
	{"k8s.io/client-go/tools/clientcmd", []string{"internal/kube", "internal/kubeconfig", "internal/workload/connect"}, "kubeconfigs are read and written in one place"},
	{"k8s.io/cli-runtime", []string{"cmd"}, "results are printed in one place"},
	{"k8s.io/cli-runtime/pkg/genericclioptions", nil, "it makes kcpctl 14 MB larger and every start slower"},
	{"github.com/cloudflare/cfssl", []string{"internal/pki"}, "certificates are made in one place"},
	{"golang.org/x/term", []string{"internal/ui"}, "terminals are ui's"},
	{"os/exec", []string{"cmd", "internal/local"}, "nothing else starts processes"},
	{"github.com/shirou/gopsutil", []string{"internal/local/process"}, "processes are listed in one place"},
}

// pure packages may not import impure ones: their results depend only on their arguments.
var (
	pure = []string{"internal/api/v1alpha1", "internal/topology", "internal/release", "internal/render", "internal/plan", "internal/ready", "internal/dag", "internal/diff", "internal/importer", "internal/kcpapi", "internal/operator",
		"internal/workload/api", "internal/workload/fleet", "internal/workload/guard", "internal/workload/kinds", "internal/workload/lcd", "internal/workload/negotiate", "internal/workload/schedule",
		"internal/workload/served", "internal/workload/splitter",
	}
	impure = []string{"net/http", "os/exec", "k8s.io/client-go/rest"}
)

// below has the packages on which a package must not depend, directly or indirectly.
var below = map[string][]string{
	"internal/api/v1alpha1": {"internal"},
	"internal/topology":     {"internal/setup", "internal/pki", "internal/render", "internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/pki":          {"internal/render", "internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/render":       {"internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/importer":     {"internal/pki", "internal/render", "internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/agent":        {"internal/setup", "internal/pki", "internal/render", "internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/agentstate":   {"internal/setup", "internal/render", "internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/operator":     {"internal/setup", "internal/pki", "internal/render", "internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/parallel":     {"internal"},
	"internal/check":        {"internal/run", "internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/run":          {"internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/kube":         {"internal/local", "internal/ui", "cmd"},
	"internal/local":        {"internal/kube", "internal/ui", "cmd"},
	"internal/workspace":    {"internal/kube", "internal/local", "internal/ui", "cmd"},
	"internal/ui":           {"internal/kube", "internal/local", "cmd"},

	"internal/local/ports":   {"internal/pki", "internal/render", "internal/run", "internal/check"},
	"internal/local/process": {"internal/topology", "internal/pki", "internal/run"},
	"internal/filelock":      {"internal"},
	"internal/gather":        {"internal"},
	"internal/kcpapi":        {"internal"},
	"internal/heap":          {"internal"},

	"internal/workload/api":        {"internal"},
	"internal/workload/kinds":      {"internal"},
	"internal/workload/lcd":        {"internal"},
	"internal/workload/watch":      {"internal"},
	"internal/workload/puller":     {"internal"},
	"internal/workload/syncer":     {"internal/kube", "internal/kcp", "internal/setup", "internal/run", "internal/ui", "cmd"},
	"internal/workload/capacity":   {"internal/kube", "internal/kcp", "internal/setup", "internal/run", "internal/ui", "cmd"},
	"internal/workload/probe":      {"internal", "cmd"},
	"internal/workload/connect":    {"internal/kube", "internal/kcp", "internal/setup", "internal/run", "internal/ui", "cmd"},
	"internal/workload/heartbeat":  {"internal/kube", "internal/kcp", "internal/setup", "internal/run", "internal/ui", "cmd"},
	"internal/workload/controller": {"internal/kube", "internal/kcp", "internal/setup", "internal/run", "internal/ui", "cmd"},
	"internal/workload/roots":      {"internal/kube", "internal/kcp", "internal/setup", "internal/run", "internal/ui", "cmd"},
}

// table is a table of names, which all packages may use.
const table = "internal/kcpapi"

// kubeParts are the packages of kube with one job each. They build on internal/kube/cluster, and do not know each other.
var kubeParts = []string{
	"internal/kube/adopt", "internal/kube/facts", "internal/kube/inventory", "internal/kube/lease", "internal/kube/logs", "internal/kube/portforward",
	"internal/kube/physical", "internal/kube/workload",
}

// kubernetesTypes are the packages of k8s.io/api that kcpctl links. Each one adds all its types with their methods: 50 kB to 800 kB.
var kubernetesTypes = []string{"k8s.io/api/apidiscovery/v2", "k8s.io/api/coordination/v1", "k8s.io/api/core/v1", "k8s.io/api/rbac/v1"}

// within reports whether a package is another one or below it.
func within(name, other string) bool { return name == other || strings.HasPrefix(name, other+"/") }

func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", module+"...").Output()
	require.NoError(t, err)
	all := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if name := strings.TrimPrefix(p.ImportPath, module); !strings.HasPrefix(name, "test/") && !strings.HasPrefix(name, "internal/tools/") {
			all[name] = p
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestImports(t *testing.T) {
	all := packages(t)
	for name, p := range all {
		for _, rule := range onlyIn {
			for _, i := range p.Imports {
				if within(i, rule.imported) {
					allowed := slices.ContainsFunc(rule.by, func(by string) bool { return within(name, by) })
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

func TestLayers(t *testing.T) {
	all := packages(t)
	for name, forbidden := range below {
		p, ok := all[name]
		require.True(t, ok, "no package %s", name)
		for _, dep := range p.Deps {
			rel, own := strings.CutPrefix(dep, module)
			for _, f := range forbidden {
				require.False(t, own && rel != table && within(rel, f), "%s depends on %s", name, rel)
			}
		}
	}
}

func TestKubePartsAreIndependent(t *testing.T) {
	all := packages(t)
	for _, name := range append(kubeParts, "internal/kube/cluster") {
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
	for _, name := range pure {
		p, ok := all[name]
		if !ok {
			continue
		}
		for _, i := range p.Imports {
			require.NotContains(t, impure, i, "%s is pure", name)
		}
	}
}
