package action

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// fences matches a block of YAML in a page.
var fences = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// scripts returns the shell of the examples in docs/ci.md by their kind: steps of GitHub, a job of GitLab, a Task of
// Tekton. Steps that use an action have none.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/ci.md")
	require.NoError(t, err)
	type steps []struct{ Run, Script, Uses string }
	out := map[string]string{}
	for _, m := range fences.FindAllStringSubmatch(string(page), -1) {
		var example struct {
			Steps steps
			Jobs  map[string]struct{ Steps steps }
			Test  struct{ Script []string }
			Spec  struct{ Steps steps }
		}
		require.NoError(t, yaml.Unmarshal([]byte(m[1]), &example), m[1])
		add := func(kind string, all steps) {
			for _, s := range all {
				out[kind] += s.Run + s.Script + "\n"
			}
		}
		add("GitHub, a test", example.Steps)
		add("GitHub, a comment", example.Jobs["diff"].Steps)
		add("Tekton", example.Spec.Steps)
		out["GitLab"] += strings.Join(example.Test.Script, "\n")
	}
	return out
}

// The examples of docs/ci.md run under sh as in a job, with kcpctl and other commands that only write how they are
// called. A diff with differences, exit code 1, is a comment; a failed one ends the job.
func TestScriptsOfTheExamples(t *testing.T) {
	const install = "go install github.com/kcpctl/kcpctl@latest\n"
	const test = "kcpctl up --local --ephemeral -f kcp.yaml -- go test ./...\n"
	const compare = "kcpctl validate\nkcpctl diff -o markdown\n"
	const comment = "gh pr comment 7 --body-file diff.md --edit-last --create-if-none\n"
	all := scripts(t)
	for _, tc := range []struct {
		example, code, want string
		fails               bool
	}{
		{example: "GitHub, a test", want: "kubectl get workspaces\n"},
		{example: "GitLab", want: install + test},
		{example: "Tekton", want: install + test},
		{example: "GitHub, a comment", code: "0", want: compare + comment},
		{example: "GitHub, a comment", code: "1", want: compare + comment},
		{example: "GitHub, a comment", code: "2", want: compare, fails: true},
	} {
		t.Run(tc.example+" "+tc.code, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"kcpctl", "kubectl", "go", "gh"} {
				text := "#!/bin/sh\necho \"" + name + " $*\" >> \"$LOG\"\n[ \"$1\" != diff ] || exit ${CODE:-0}\n"
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
			}
			c := exec.Command("sh", "-e", "-c", all[tc.example])
			c.Dir = dir
			c.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "LOG=" + filepath.Join(dir, "log"), "NUMBER=7", "CODE=" + tc.code,
				"CLUSTER=text", "RUNNER_TEMP=" + dir, "GITHUB_ENV=" + filepath.Join(dir, "env")}
			out, err := c.CombinedOutput()
			require.Equal(t, tc.fails, err != nil, string(out))
			log, err := os.ReadFile(filepath.Join(dir, "log"))
			require.NoError(t, err)
			require.Equal(t, tc.want, string(log))
		})
	}
}
