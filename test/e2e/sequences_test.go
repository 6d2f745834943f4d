//go:build e2e && long && day2

package e2e

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
)

// move is an action of an operator, by mistake or on purpose. The setup file is restored after it.
type move struct {
	name string
	do   func(t *testing.T, q *sequence)
}

// sequence is a running setup and its operators.
type sequence struct {
	*setup
	// foreign is a directory with the authorities of another kcp.
	foreign string
	// copy is a directory with the authorities of this kcp before any rotation.
	copy string
}

// mistakes returns moves that are refused and change nothing.
func mistakes() []move {
	refusedUp := func(old, replacement string, facts ...string) func(*testing.T, *sequence) {
		return func(t *testing.T, q *sequence) {
			q.edit(t, old, replacement)
			q.kcpctl(t, "up").refused(t, 1, facts...)
		}
	}
	return []move{
		{"an empty PKI directory", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "up", "--pki-dir", t.TempDir()).refused(t, 1, "server CA", "hint: ")
		}},
		{"the PKI directory of another kcp", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "up", "--pki-dir", q.foreign).refused(t, 1, "that of installation", "--replace-authorities")
		}},
		{"the authorities of another kcp", func(t *testing.T, q *sequence) {
			q.certs(t, "import", q.foreign).refused(t, 4, "server CA")
		}},
		{"a renamed shard", refusedUp("- name: alpha", "- name: omega", "shard/alpha", "kcpctl remove-shard alpha")},
		{"a dropped shard", func(t *testing.T, q *sequence) {
			q.write(t, strings.Replace(q.text, "  - name: beta\n", "", 1))
			q.kcpctl(t, "up").refused(t, 1, "shard/beta", "kcpctl remove-shard beta")
		}},
		{"an older release", func(t *testing.T, q *sequence) {
			q.edit(t, "version: v0.32.3", "version: v0.32.2")
			q.kcpctl(t, "up", "--kcp-bin-dir", given(t, "E2E_KCP_OLDER_BIN_DIR")).refused(t, 1, "root-shard", "v0.32.3", "--allow-release-change")
		}},
		{"a release too far", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "upgrade", "v0.34.0").refused(t, 2, "v0.34.0", "hint: ")
		}},
		{"the cache server is not a shard", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "remove-shard", "cache", "--purge", "--yes").refused(t, 2, `"cache"`, "kcpctl status")
		}},
		{"a mistyped shard", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "remove-shard", "alhpa", "--purge", "--yes").refused(t, 2, `"alhpa"`, "kcpctl status")
		}},
		{"a shard in use", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "remove-shard", "alpha", "--purge", "--yes").refused(t, 1, "shard/alpha", "root:on-alpha", "--drain")
		}},
		{"a purge without an answer", func(t *testing.T, q *sequence) { require.NotZero(t, q.kcpctl(t, "down", "--purge").code) }},
		{"a variable that would purge", func(t *testing.T, q *sequence) {
			c := q.command("down", "--yes")
			c.env = append(slices.Clone(c.env), "KCPCTL_PURGE=true")
			c.run(t.Context(), t).refused(t, 2, "KCPCTL_PURGE")
		}},
	}
}

// changes returns moves that change what runs and lose nothing.
func changes() []move {
	return []move{
		{"down and up", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "down", "--yes").ok(t)
			q.up(t)
		}},
		{"down, mistakes, and up", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "down", "--yes").ok(t)
			for _, m := range []string{"an empty PKI directory", "a renamed shard"} {
				q.try(t, mistakes()[slices.IndexFunc(mistakes(), func(o move) bool { return o.name == m })])
			}
			q.up(t)
		}},
		{"a killed server", func(t *testing.T, q *sequence) {
			all := q.running(t)
			for name, i := range all {
				if strings.Contains(name, "alpha") {
					i.kill(t)
				}
			}
			q.up(t)
		}},
		{"a run that is killed", func(t *testing.T, q *sequence) {
			q.edit(t, "version: v0.32.3", "defaults: {logLevel: 3}\n  version: v0.32.3")
			q.interrupt(t, syscall.SIGKILL, 1, regexp.MustCompile(`"scope":"component".*"status":"running"`))
			q.write(t, q.text)
			q.up(t)
		}},
		{"a shard comes and goes", func(t *testing.T, q *sequence) {
			q.kcpctl(t, "add-shard", "gamma").ok(t)
			q.kcpctl(t, "remove-shard", "gamma", "--purge", "--yes").ok(t)
		}},
		{"renewed certificates", func(t *testing.T, q *sequence) { q.certs(t, "renew", "shard/beta").ok(t) }},
		{"a rotation, and the copy from before it", func(t *testing.T, q *sequence) {
			q.certs(t, "rotate-ca", "requestheader").ok(t)
			q.certs(t, "rotate-ca", "requestheader", "--finish", "--yes").ok(t)
			q.kcpctl(t, "up", "--pki-dir", q.copy).refused(t, 1, "requestheader CA", "sha256:", "hint: ")
		}},
		{"nothing", func(t *testing.T, q *sequence) { q.up(t).changed(t, 0) }},
	}
}

// try makes a move and restores the setup file.
func (q *sequence) try(t *testing.T, m move) {
	t.Helper()
	t.Log(m.name)
	m.do(t, q)
	q.write(t, q.text)
}

// TestLocalSequences runs each change once, in an arbitrary order, with the mistakes between them.
func TestLocalSequences(t *testing.T) {
	q := &sequence{setup: newLocal(t, "sharded"), foreign: t.TempDir(), copy: t.TempDir()}
	require.Contains(t, q.text, "version: v0.32.3")
	q.up(t)
	createWorkspaces(t, q.setup)
	q.certs(t, "export", q.copy).ok(t)
	other := newLocal(t, "minimal")
	other.kcpctl(t, "render", "--pki-dir", q.foreign, "--output-dir", filepath.Join(t.TempDir(), "out")).ok(t)

	for i, moves := range deal(rand.New(rand.NewPCG(1, 0))) {
		step(t, "sequence "+string(rune('a'+i)), func(t *testing.T) {
			for _, m := range moves {
				q.try(t, m)
				count(t, q.setup)
			}
			readWorkspaces(t, q.setup)
		})
	}
	raw, err := os.ReadFile(q.file)
	require.NoError(t, err)
	require.Equal(t, q.text, string(raw))
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

// count requires exactly the workspaces that createWorkspaces has created.
func count(t *testing.T, s *setup) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		return s.reads(t, "on-alpha on-beta on-root", []string{"admin"}, "get", "workspaces", "--output", "jsonpath={.items[*].metadata.name}")
	})
}
