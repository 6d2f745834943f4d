package pages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

const page = "# Page\n\n```console\n" + `$ kcpctl up     # starts it
$ kcpctl status
NAME   AGE
demo   5s

$ kcpctl remove-shard a   # fails if it is not empty
$ kubectl create -f - <<EOF
kind: A   # b
EOF
$ kubectl get a
` + "```\n\n<!-- not run: needs an issuer -->\n```sh\nkcpctl a | kubectl b\n```\n\n```yaml\na: b\n```\n" +
	"* item\n\n  <!-- run: cluster -->\n  ```console\n  $ a\n  b\n    c\n  ```\n"

func TestParse(t *testing.T) {
	got, err := Parse("p.md", page)
	require.NoError(t, err)
	require.Equal(t, []Block{
		{Page: "p.md", Line: 4, Run: Local, Commands: []Command{
			{Text: "kcpctl up"},
			{Text: "kcpctl status", Output: []string{"NAME   AGE", "demo   5s", ""}},
			{Text: "kcpctl remove-shard a", Fails: true},
			{Text: "kubectl create -f - <<EOF\nkind: A   # b\nEOF"},
			{Text: "kubectl get a"},
		}},
		{Page: "p.md", Line: 18, Reason: "needs an issuer", Commands: []Command{{Text: "kcpctl a | kubectl b"}}},
		{Page: "p.md", Line: 28, Run: "cluster", Commands: []Command{{Text: "a", Output: []string{"b", "  c"}}}},
	}, got)
	for text, want := range map[string]string{
		"```sh\na\n": "p.md:1: the block does not end",
		"<!-- not run: it is slow -->\n\n```sh\na\n```\n": "p.md:1: there is no shell block below the comment",
		"```console\na\n```\n":                            "p.md:2: there is no command in the block",
	} {
		_, err := Parse("p.md", text)
		require.EqualError(t, err, want)
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][][]string{
		"kcpctl up --local":        {{"kcpctl", "up", "--local"}},
		"a 'b c' d='e'f \"\"":      {{"a", "b c", "d=ef", ""}},
		"a && b | c; d":            {{"a"}, {"b"}, {"c"}, {"d"}},
		"a 2>&1 >b.yaml":           {{"a"}},
		"a > b.yaml --c":           {{"a", "--c"}},
		"a -f - <<EOF\nb | c\nEOF": {{"a", "-f", "-"}},
		`a -p '{"b": null}' --template={{.c}} | tee x.y`: {{"a", "-p", `{"b": null}`, "--template={{.c}}"}, {"tee", "x.y"}},
	} {
		require.Equal(t, want, Words(text), text)
	}
}

func TestCompare(t *testing.T) {
	shown := []string{"NAME    AGE   ID", "…", "b       5s    ff31f1d4abedee66", ""}
	for printed, want := range map[string]string{
		"NAME  AGE  ID\nb     1m2s  0123456789abcdef\n":            "",
		"NAME   AGE  ID\nx\ny\nb       5d    f6a35805050bc763\n\n": "",
		"b 5s ff31f1d4abedee66":                                    `the page has "NAME  AGE  ID" next`,
		"NAME  AGE  ID\nx":                                         `the page has "b  <duration>  <id>" next`,
		"NAME  AGE  ID\nb  5s  ff31f1d4abedee66\nc\n":              `the page does not have "c"`,
	} {
		err := Compare(shown, printed)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	require.NoError(t, Compare([]string{"leader yes"}, "leader no\n", "yes|no", "<bool>"))
	require.NoError(t, Compare([]string{
		"at 2026-11-20T15:02:11Z by ann@laptop on 2026-11-20, https://127.0.0.1:6443, 3Mi, pid 12",
	}, "at 2025-01-02T00:00:00Z by root@host-1.x on 2027-01-01, https://127.0.0.1:12443, 20Mi, pid 4711"))
}

func TestAnchors(t *testing.T) {
	require.Equal(t, []string{"kcp001-the-api-answers", "a-b", "up--down", "a-b-1"},
		Anchors("# KCP001: the API answers\n## [A](x.md) `b`\n```\n# no\n```\n### up & down\n# A b\n"))
}

// The relative links of all pages lead to files, and to headings in them.
func TestLinks(t *testing.T) {
	names, err := Pages(root)
	require.NoError(t, err)
	require.Subset(t, names, []string{"README.md", "CONTRIBUTING.md", "docs/quickstart.md"})
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for _, target := range Links(string(text)) {
			if strings.Contains(target, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(target, "#")
			file := filepath.Join(root, name)
			if path != "" {
				file = filepath.Join(filepath.Dir(file), path)
			}
			_, err := os.Stat(file)
			require.NoError(t, err, "%s: (%s)", name, target)
			if anchor == "" {
				continue
			}
			there, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, slices.Contains(Anchors(string(there)), anchor), "%s: (%s): there is no such heading", name, target)
		}
	}
}
