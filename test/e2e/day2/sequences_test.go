package day2

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// move is an action of an operator, by mistake or on purpose. The setup file is restored after it.
type move struct {
	name string
	do   func(t *testing.T, q *sequence)
}

// sequence is a running setup and its operators.
type sequence struct {
	*framework.Setup
	// foreign is a directory with the authorities of another kcp.
	foreign string
	// copy is a directory with the authorities of this kcp before any rotation.
	copy string
}

// mistakes returns moves that are refused and change nothing.
func mistakes() []move {
	refusedUp := func(old, replacement string, facts ...string) func(*testing.T, *sequence) {
		return func(t *testing.T, q *sequence) {
			q.Edit(t, old, replacement)
			q.Kcpctl(t, "up").Refused(t, 1, facts...)
		}
	}
	return []move{
		{"an empty PKI directory", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "up", "--pki-dir", t.TempDir()).Refused(t, 1, "server CA", "hint: ")
		}},
		{"the PKI directory of another kcp", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "up", "--pki-dir", q.foreign).Refused(t, 1, "that of installation", "--replace-authorities")
		}},
		{"the authorities of another kcp", func(t *testing.T, q *sequence) {
			q.Certs(t, "import", q.foreign).Refused(t, 4, "server CA")
		}},
		{"a renamed shard", refusedUp("- name: alpha", "- name: omega", "shard/alpha", "kcpctl remove-shard alpha")},
		{"a dropped shard", func(t *testing.T, q *sequence) {
			q.Write(t, strings.Replace(q.Text, "  - name: beta\n", "", 1))
			q.Kcpctl(t, "up").Refused(t, 1, "shard/beta", "kcpctl remove-shard beta")
		}},
		{"an older release", func(t *testing.T, q *sequence) {
			q.Edit(t, "version: v0.32.3", "version: v0.32.2")
			q.Kcpctl(t, "up", "--kcp-bin-dir", framework.Given(t, "E2E_KCP_OLDER_BIN_DIR")).Refused(t, 1, "root-shard", "v0.32.3", "--allow release-change")
		}},
		{"a release too far", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "upgrade", "v0.34.0").Refused(t, 1, "v0.34.0", "hint: ")
		}},
		{"the cache server is not a shard", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "remove-shard", "cache", "--purge", "--yes").Refused(t, 2, `"cache"`, "kcpctl status")
		}},
		{"a mistyped shard", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "remove-shard", "alhpa", "--purge", "--yes").Refused(t, 2, `"alhpa"`, "kcpctl status")
		}},
		{"a shard in use", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "remove-shard", "alpha", "--purge", "--yes").Refused(t, 1, "shard/alpha", "root:on-alpha", "--drain")
		}},
		{"a purge without an answer", func(t *testing.T, q *sequence) { require.NotZero(t, q.Kcpctl(t, "down", "--purge").Code) }},
		{"a variable that would purge", func(t *testing.T, q *sequence) {
			c := q.Command("down", "--yes")
			c.Env = append(slices.Clone(c.Env), "KCPCTL_PURGE=true")
			c.Run(t.Context(), t).Refused(t, 2, "KCPCTL_PURGE")
		}},
	}
}

// changes returns moves that change what runs and lose nothing.
func changes() []move {
	return []move{
		{"down and up", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "down", "--yes").OK(t)
			q.Up(t)
		}},
		{"down, mistakes, and up", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "down", "--yes").OK(t)
			for _, m := range []string{"an empty PKI directory", "a renamed shard"} {
				q.try(t, mistakes()[slices.IndexFunc(mistakes(), func(o move) bool { return o.name == m })])
			}
			q.Up(t)
		}},
		{"a killed server", func(t *testing.T, q *sequence) {
			all := q.Running(t)
			for name, i := range all {
				if strings.Contains(name, "alpha") {
					i.Kill(t)
				}
			}
			q.Up(t)
		}},
		{"a run that is killed", func(t *testing.T, q *sequence) {
			q.Edit(t, "version: v0.32.3", "defaults: {logLevel: 3}\n  version: v0.32.3")
			interrupt(t, q.Setup, syscall.SIGKILL, 1, regexp.MustCompile(`"scope":"component".*"status":"running"`))
			q.Write(t, q.Text)
			q.Up(t)
		}},
		{"a shard comes and goes", func(t *testing.T, q *sequence) {
			q.Kcpctl(t, "add-shard", "gamma").OK(t)
			q.Kcpctl(t, "remove-shard", "gamma", "--purge", "--yes").OK(t)
		}},
		{"renewed certificates", func(t *testing.T, q *sequence) { q.Certs(t, "renew", "shard/beta").OK(t) }},
		{"a rotation, and the copy from before it", func(t *testing.T, q *sequence) {
			q.Certs(t, "rotate-ca", "requestheader").OK(t)
			q.Certs(t, "rotate-ca", "requestheader", "--finish", "--yes").OK(t)
			q.Kcpctl(t, "up", "--pki-dir", q.copy).Refused(t, 1, "requestheader CA", "sha256:", "hint: ")
		}},
		{"nothing", func(t *testing.T, q *sequence) { q.Up(t).Changed(t, 0) }},
	}
}

// try makes a move and restores the setup file.
func (q *sequence) try(t *testing.T, m move) {
	t.Helper()
	t.Log(m.name)
	m.do(t, q)
	q.Write(t, q.Text)
}

// TestLocalSequences runs each change once, in an arbitrary order, with the mistakes between them.
func TestLocalSequences(t *testing.T) {
	q := &sequence{Setup: framework.NewLocal(t, "sharded"), foreign: t.TempDir(), copy: t.TempDir()}
	require.Contains(t, q.Text, "version: v0.32.3")
	q.Up(t)
	framework.CreateWorkspaces(t, q.Setup)
	q.Certs(t, "export", q.copy).OK(t)
	other := framework.NewLocal(t, "minimal")
	other.Kcpctl(t, "render", "--pki-dir", q.foreign, "--output-dir", filepath.Join(t.TempDir(), "out")).OK(t)

	for i, moves := range deal(rand.New(rand.NewPCG(1, 0))) {
		framework.Step(t, "sequence "+string(rune('a'+i)), func(t *testing.T) {
			for _, m := range moves {
				q.try(t, m)
				count(t, q.Setup)
			}
			framework.ReadWorkspaces(t, q.Setup)
		})
	}
	raw, err := os.ReadFile(q.File)
	require.NoError(t, err)
	require.Equal(t, q.Text, string(raw))
}

// deal divides the mistakes among the changes, and returns a sequence of moves for each change.
func deal(random *rand.Rand) [][]move {
	changes := changes()
	random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	all := make([][]move, len(changes))
	for i, c := range changes {
		all[i] = []move{c}
	}
	mistakes := mistakes()
	for i, at := range random.Perm(len(mistakes)) {
		all[i%len(all)] = append(all[i%len(all)], mistakes[at])
	}
	for _, moves := range all {
		random.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
	}
	return all
}

// count requires exactly the workspaces that CreateWorkspaces has created.
func count(t *testing.T, s *framework.Setup) {
	t.Helper()
	framework.Eventually(t.Context(), t, func() error {
		return s.Reads(t, "on-alpha on-beta on-root", []string{"admin"}, "get", "workspaces", "--output", "jsonpath={.items[*].metadata.name}")
	})
}
