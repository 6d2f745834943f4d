package long

import (
	"iter"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// Each release's own programs accept all arguments that are rendered for it. A program that finds --help has read the
// flags before it, with their values, and does not start.
func TestProgramsAcceptTheirArguments(t *testing.T) {
	texts := map[string]string{"every kind": topologytest.EveryKind}
	for _, name := range examples.Names() {
		text, err := examples.Read(name)
		require.NoError(t, err)
		texts[name] = string(text)
	}
	for version, directory := range map[string]string{
		"v0.32.2": framework.Given(t, "E2E_KCP_OLDER_BIN_DIR"), "v0.32.3": framework.Given(t, "E2E_KCP_BIN_DIR"),
	} {
		accepted := map[string]int{}
		for name, text := range texts {
			for program, args := range commandLines(t, text, version) {
				out, err := exec.Command(filepath.Join(directory, program), append(args, "--help")...).CombinedOutput()
				require.NoError(t, err, "%s, %s: %s %s:\n%.500s", name, version, program, strings.Join(args, " "), out)
				accepted[program]++
			}
		}
		require.Len(t, accepted, 4, "%v", accepted)
		t.Logf("%s accepts so many command lines: %v", version, accepted)
	}
}

// commandLines returns the programs of kcp in a setup of a release, each with its arguments, once for each component.
func commandLines(t *testing.T, text, version string) iter.Seq2[string, []string] {
	t.Helper()
	s := topologytest.Setup(t, text)
	s.Spec.Version = version
	top := topology.Build(s)
	certificates, err := pki.Ensure(top, &pki.State{Installation: pki.Installation{ID: "demo-x7k2m9qd"}}, pki.Options{Now: time.Now()})
	require.NoError(t, err)
	objects, err := render.Objects(top, certificates.State)
	require.NoError(t, err)
	return func(yield func(string, []string) bool) {
		for _, o := range objects {
			for _, p := range []string{"cache-server", "kcp", "kcp-front-proxy", "virtual-workspaces"} {
				args, ok := argumentsOf(t, o, p)
				if ok && !yield(p, args) {
					return
				}
			}
		}
	}
}

// argumentsOf returns the arguments of a program in the pods of an object. Addresses stand for variables of the pod.
func argumentsOf(t *testing.T, o render.Object, program string) ([]string, bool) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	for _, c := range containers {
		command, _, _ := unstructured.NestedStringSlice(c.(map[string]any), "command")
		args, _, err := unstructured.NestedStringSlice(c.(map[string]any), "args")
		require.NoError(t, err)
		if len(command) > 0 && filepath.Base(command[0]) == program {
			args = append(command[1:], args...)
			for i, arg := range args {
				args[i] = regexp.MustCompile(`\$\([A-Z_]+\)`).ReplaceAllString(arg, "127.0.0.1")
			}
			return args, true
		}
	}
	return nil, false
}
