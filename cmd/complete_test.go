package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/status"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
)

// errReached is how far a command gets in these tests: it has accepted its flags and arguments, and connects.
var errReached = errors.New("the command connects")

// besides has what a command needs besides the completed value, for those that need something.
func besides(what, value string) []string {
	all := map[string][]string{
		"add-shard": {"new"}, "agent add": {"new", "--workspace", "root:new", "--publish", "A.example.com"},
		"add-shard --etcd=external": {"new", "--etcd-endpoint", "http://etcd.example.com:2379"},
		"cluster add":               {"new", "--context", "none"},
		"kubeconfig --target":       {"--user", "ann"},
		"logs":                      {"root-shard"}, "remove-shard": {"old"}, "certs rotate-ca": {"server"}, "upgrade": {"v0.32.3"},
		"down --orphan":       {"--purge"},
		"etcd replace-member": {"pod"},
		"move":                {"root:a", "--to", "root"}, "move --to": {"root:a"},
		"restore": {"backups/demo-20261126T012016Z"}, "backup verify": {"backups/demo-20261126T012016Z"},
		"backup create": {"--to", "backups"}, "backup list": {"--from", "backups"},
		"backup prune": {"--from", "backups", "--keep", "1"}, "restart": {"root-shard"},
		"cluster remove": {"c9"}, "cluster drain": {"c9"}, "agent remove": {"old"}, "cluster replace": {"c9"},
		"workloads explain":   {"deployment/web", "-w", "root:team"},
		"workloads rebalance": {"--dry-run"},
		"controller":          {"--kubeconfig", "none"},
	}
	command, _, _ := strings.Cut(what, " --")
	for _, key := range []string{what + "=" + value, what, command} {
		if words, ok := all[key]; ok {
			return words
		}
	}
	return nil
}

// complete returns what the shell offers for a line.
func (x *shell) complete(t *testing.T, words ...string) []string {
	t.Helper()
	_, out := x.run(t, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return slices.DeleteFunc(lines[:len(lines)-1], func(s string) bool { return s == "" })
}

// shell runs commands in a directory with kcp.yaml. No command gets further than to its clusters.
type shell struct {
	home string
	// local is the value of KCPCTL_LOCAL.
	local string
}

func (x *shell) run(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	streams, stdout, stderr := ui.Fake("", 0, 0)
	env := &Env{Streams: streams, Now: time.Now, Program: "kcpctl",
		Getenv: func(k string) string { return map[string]string{"HOME": x.home, "KCPCTL_LOCAL": x.local}[k] },
		Open:   func(*topology.Topology, kube.Options) (run.Runtime, error) { return nil, errReached },
	}
	code = Main(t.Context(), args, env)
	if code == 2 {
		return code, stderr.String()
	}
	return code, stdout.String()
}

func newShell(t *testing.T) *shell {
	t.Helper()
	x := &shell{home: t.TempDir()}
	t.Chdir(x.home)
	t.Setenv("HOME", x.home)
	t.Setenv("XDG_CONFIG_HOME", x.home)
	return x
}

// What completion offers for the flags and arguments of each command is accepted by the command, in all examples.
func TestCompletedValuesAreAccepted(t *testing.T) {
	x := newShell(t)
	// Values can require other flags, or something in the setup file.
	otherMistake := regexp.MustCompile(`after the edit: |has no spec.workloads|has no complete backup|no recipient to encrypt|cluster "c9"|agent "old"|read the kubeconfig: |managed etcd "pod"|a directory is required|must be a fingerprint`)
	offered := map[string]bool{}
	tried := map[string]bool{} // most values are the same in all examples
	setups := map[string][]byte{"older": []byte("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n" +
		"spec: {version: v0.31.6}\n")}
	for _, example := range examples.Names() {
		text, err := examples.Read(example)
		require.NoError(t, err)
		setups[example] = text
	}
	for example, text := range setups {
		for _, c := range runnable() {
			name := strings.TrimPrefix(c.CommandPath(), "kcpctl ")
			restore := func() { require.NoError(t, os.WriteFile("kcp.yaml", text, 0o600)) } // commands edit it
			restore()
			try := func(what string, values []string, line func(value string) []string) {
				for _, value := range values {
					if tried[what+" "+value] {
						continue
					}
					tried[what+" "+value] = true
					restore()
					if strings.HasSuffix(value, "=") { // a template follows
						value += "{}"
					}
					words := append(strings.Fields(name), line(value)...)
					offline := slices.DeleteFunc(x.offline(c, name), func(flag string) bool {
						return strings.HasPrefix(words[len(words)-1], flag+"=") // it has one value
					})
					code, out := x.run(t, append(words, offline...)...)
					assert.False(t, code == 2 && !otherMistake.MatchString(out), "%s: kcpctl %s: %s", example,
						strings.Join(words, " "), out)
					offered[what] = true
				}
			}
			if c.ValidArgsFunction != nil {
				try(name, x.complete(t, append(strings.Fields(name), "")...), func(v string) []string { return []string{v} })
			}
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if _, ok := c.GetFlagCompletionFunc(f.Name); !ok {
					return
				}
				what := name + " --" + f.Name
				flag := []string{"--" + f.Name, ""}
				if f.NoOptDefVal != "" { // the next word is not its value
					flag = []string{"--" + f.Name + "="}
				}
				try(what, x.complete(t, append(strings.Fields(name), flag...)...),
					func(v string) []string {
						return append(slices.Clone(besides(what, v)), "--"+f.Name+"="+v)
					})
			})
		}
	}
	for _, what := range []string{"up --only", "up --allow", "up --ignore-checks", "logs",
		"certs renew", "certs rotate-ca", "cordon", "remove-shard", "kubeconfig", "kubeconfig --target", "upgrade",
		"etcd members", "etcd replace-member", "add-shard --etcd", "agent remove", "cluster drain", "status --output", "move --to"} {
		require.True(t, offered[what], "nothing is offered for %s", what)
	}
}

// offline are the flags with which a command ends before it changes anything that other values need.
func (x *shell) offline(c *cobra.Command, name string) []string {
	var flags []string
	switch name {
	case "init":
		return []string{"-f", filepath.Join(x.home, "new.yaml"), "--force"}
	case "agent remove", "add-shard", "agent add", "cluster add", "upgrade":
		return []string{"--dry-run"}
	}
	if c.Flags().Lookup("yes") != nil {
		flags = append(flags, "--yes")
	}
	return flags
}

// With --local there are no etcds, and neither their certificates nor their members.
func TestCompletionOnThisMachine(t *testing.T) {
	x := newShell(t)
	text, err := examples.Read("sharded")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("kcp.yaml", text, 0o600))
	require.Contains(t, x.complete(t, "logs", ""), "etcd/root")
	require.Contains(t, x.complete(t, "etcd", "members", ""), "root")
	x.local = "true"
	for _, words := range [][]string{
		{"logs", ""}, {"up", "--only", ""}, {"certs", "renew", ""}, {"up", "--allow", ""},
	} {
		all := x.complete(t, words...)
		require.NotEmpty(t, all, words)
		for _, value := range all {
			require.NotContains(t, value, "etcd", words)
			if words[0] != "up" {
				line := append(words[:len(words)-1:len(words)-1], value)
				code, out := x.run(t, line...)
				require.NotEqual(t, 2, code, "%s: %s", line, out)
			}
		}
	}
	require.Empty(t, x.complete(t, "etcd", "members", ""))
	require.Empty(t, x.complete(t, "history", "--revision", ""))
}

// The revisions on this machine are offered, newest first.
func TestCompletionOfRevisions(t *testing.T) {
	x := newShell(t)
	text, err := examples.Read("minimal")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("kcp.yaml", text, 0o600))
	s := sessionOf(t, string(text))
	dir := filepath.Join(x.home, ".local", "state", "kcpctl", s.topology.Name, "history")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	var history []plan.Revision
	for n := 1; n <= 3; n++ {
		history = append(history, plan.Revision{Number: n, Time: time.Now(), Setup: text})
	}
	files, err := plan.EncodeHistory(history, nil)
	require.NoError(t, err)
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	x.local = "true"
	require.Equal(t, []string{"3", "2", "1"}, x.complete(t, "history", "--revision", ""))
	require.Equal(t, []string{"3", "2", "1"}, x.complete(t, "diff", "--revision", ""))
}

// Every ID in the output of status is accepted by the commands that take components.
func TestIDsOfStatusAreAccepted(t *testing.T) {
	for _, example := range examples.Names() {
		text, err := examples.Read(example)
		require.NoError(t, err)
		s := sessionOf(t, string(text))
		withCertificates := certificateNames(s)
		for _, c := range status.Shown(s.topology) {
			id := string(c.ID())
			_, err := (&upOptions{only: []string{id}}).selected(s)
			require.NoError(t, err, "--only %s of %s", id, example)
			if c.Runs() {
				require.Contains(t, componentIDs(s), id, "logs of %s", example)
			}
			if len(pki.CertsOf(s.topology, c)) > 0 {
				require.Contains(t, withCertificates, id, "certs renew of %s", example)
				_, err := (&certsRenewOptions{names: []string{id}}).named(s.topology)
				require.NoError(t, err)
			}
		}
	}
}
