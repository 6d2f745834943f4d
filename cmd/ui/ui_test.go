package ui

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

func TestStyle(t *testing.T) {
	for name, tc := range map[string]struct {
		width   int
		env     []string
		options Options
		want    string
	}{
		"terminal":            {80, []string{utf8Lang}, Options{}, "\x1b[32m✓\x1b[0m"},
		"LC_ALL decides":      {80, []string{utf8Lang, "LC_ALL=C"}, Options{}, "\x1b[32m+\x1b[0m"},
		"no locale":           {80, nil, Options{}, "\x1b[32m+\x1b[0m"},
		"utf8 without a dash": {80, []string{"LANG=C.utf8"}, Options{}, "\x1b[32m✓\x1b[0m"},
		"pipe":                {0, []string{utf8Lang}, Options{}, "✓"},
		"NO_COLOR":            {80, []string{utf8Lang, "NO_COLOR=1"}, Options{}, "✓"},
		"NO_COLOR, overruled": {80, []string{utf8Lang, "NO_COLOR=1"}, Options{Color: ColorAlways}, "\x1b[32m✓\x1b[0m"},
		"dumb":                {80, []string{utf8Lang, "TERM=dumb"}, Options{}, "+"},
		"never":               {80, []string{utf8Lang}, Options{Color: ColorNever}, "✓"},
		"always into a pipe":  {0, []string{utf8Lang}, Options{Color: ColorAlways}, "\x1b[32m✓\x1b[0m"},
		"plain":               {80, []string{utf8Lang}, Options{Plain: true}, "✓"},
		"plain, with colours": {80, []string{utf8Lang}, Options{Plain: true, Color: ColorAlways}, "\x1b[32m✓\x1b[0m"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := Fake("", tc.width, 24, tc.env...)
			require.NoError(t, s.Configure(tc.options))
			require.Equal(t, tc.want, s.Out.Check())
			require.Equal(t, tc.want, s.Err.Check())
		})
	}
}

func TestConfigureRefusesUnknownColour(t *testing.T) {
	s, _, _ := Fake("", 80, 24)
	err := s.Configure(Options{Color: "sometimes"})
	require.ErrorContains(t, err, `"sometimes"`)
	require.Equal(t, clierr.BadInput, clierr.Code(err))
}

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, utf8, ascii string }{
		"plain":              {"0/1 ready", "0/1 ready", "0/1 ready"},
		"our own glyphs":     {"a → b · c…", "a → b · c…", "a -> b - c..."},
		"other languages":    {"größer", "größer", "gr??er"},
		"control characters": {"a\x1b[2Jb\x07\u009b", "a[2Jb", "a[2Jb"},
		"direction override": {"a\u202eb", "ab", "ab"},
		"several lines":      {"\ta\nb\r\n", "a b", "a b"},
		"invalid UTF-8":      {"a\xffb", "a\ufffdb", "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.utf8, Style{utf8: true}.Text(tc.in))
			require.Equal(t, tc.ascii, Style{}.Text(tc.in))
		})
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[time.Duration][2]string{
		0:                                   {"0.0s", "0s"},
		-time.Second:                        {"0.0s", "0s"},
		1290 * time.Millisecond:             {"1.2s", "1s"},
		9999 * time.Millisecond:             {"9.9s", "9s"},
		41 * time.Second:                    {"41s", "41s"},
		72 * time.Second:                    {"1m12s", "72s"},
		3*time.Minute + 4*time.Second:       {"3m4s", "3m4s"},
		2*time.Hour + 3*time.Minute:         {"2h3m", "123m"},
		4 * 24 * time.Hour:                  {"96h0m", "4d"},
		361*24*time.Hour + 30*time.Second:   {"8664h0m", "361d"},
		365*24*time.Hour*3 + 24*2*time.Hour: {"26328h0m", "3y2d"},
	} {
		require.Equal(t, want, [2]string{elapsed(in), Age(in)}, in)
	}
}

func TestClipAndWrap(t *testing.T) {
	utf8, ascii := Style{utf8: true}, Style{}
	require.Equal(t, "abcdef", utf8.clip("abcdef", 6))
	require.Equal(t, "abcd…", utf8.clip("abcdef", 5))
	require.Equal(t, "ab…", utf8.clip("ab cdef", 4), "no space before the dots")
	require.Equal(t, "ab...", ascii.clip("abcdef", 5))
	require.Equal(t, "..", ascii.clip("abcdef", 2))
	require.Empty(t, utf8.clip("abcdef", -1))
	require.Equal(t, []string{"one two", "three"}, wrap("one two three", 8))
	require.Equal(t, []string{"one two", "three"}, wrap("one two three", 7))
	require.Equal(t, []string{"abcd", "ef"}, wrap("abcdef", 4))
	require.Equal(t, []string{"a b"}, wrap("a b", 0))
	require.Equal(t, []string{"use", "--only-x"}, wrap("use --only-x", 8), "flags are not broken")
}

func TestWideAndCombiningCharacters(t *testing.T) {
	utf8 := Style{utf8: true, colour: true}
	require.Equal(t, 4, width(utf8.Red("日本")))
	require.Equal(t, 6, width("re\u0301sume\u0301"), "an accent takes no column")
	require.Equal(t, "日… ", pad(utf8.clip("日本語", 4), 4))
	require.Equal(t, "e\u0301e\u0301…", utf8.clip("e\u0301e\u0301e\u0301e\u0301", 3))
	require.Equal(t, []string{"日本", "語"}, wrap("日本語", 5))
	require.Equal(t, []string{"日", "本"}, wrap("日本", 1), "no line is empty")
}

func TestTable(t *testing.T) {
	s, out, _ := Fake("", 80, 24, utf8Lang)
	Table(s.Out, []string{"NAME", "STATE", "AGE"},
		[]string{"root-shard", s.Out.Green("Ready"), "4d"},
		[]string{"a", s.Out.Red("Degraded"), ""})
	require.Equal(t, "NAME         STATE      AGE\n"+
		"root-shard   \x1b[32mReady\x1b[0m      4d\n"+
		"a            \x1b[31mDegraded\x1b[0m\n", out.String())
}

func TestTree(t *testing.T) {
	tree := Node{Cells: []string{"kcp demo", "", "v0.32.3", "Ready", "https://kcp.example.com:6443"}, Children: []Node{
		{Cells: []string{"cache-server", "1/1", "v0.32.3", "Ready", "4d"}},
		{Cells: []string{"root-shard", "2/2", "v0.32.3", "Ready", "4d"}, Children: []Node{{Cells: []string{"etcd/root", "3/3", "v3.6.5", "Ready", "4d"}}}},
		{Cells: []string{"front-proxy/main", "1/2", "v0.32.3", "Degraded", "3m"}, Children: []Node{{Cells: []string{"Pod demo-front-proxy-main-x2x: OOMKilled"}}}},
	}}
	for name, env := range map[string]string{"utf8": utf8Lang, "ascii": "LANG=C"} {
		t.Run(name, func(t *testing.T) {
			s, out, _ := Fake("", 0, 0, env)
			s.Out.Tree(tree)
			testutil.Golden(t, "tree-"+name+".golden", out.Bytes())
		})
	}
}

func TestConfirm(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want bool
		err  string
	}{
		"y":     {in: "y\n", want: true},
		"yes":   {in: " YES \n", want: true},
		"no":    {in: "no\n"},
		"enter": {in: "\n"},
		"end":   {in: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, out, stderr := Fake(tc.in, 80, 24)
			got, err := s.Confirm(t.Context(), "Delete 21 objects of demo?")
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Contains(t, stderr.String(), "Delete 21 objects of demo? [y/N] ")
			require.Empty(t, out.String())
		})
	}
}

func TestConfirmNeedsTerminals(t *testing.T) {
	for name, change := range map[string]func(*Streams){
		"stdin":  func(s *Streams) { s.InTTY = false },
		"stderr": func(s *Streams) { s.Err.TTY = false },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, stderr := Fake("y\n", 80, 24)
			change(s)
			_, err := s.Confirm(t.Context(), "Delete?")
			require.Equal(t, clierr.BadInput, clierr.Code(err))
			require.EqualError(t, err, "confirmation is required, but there is no terminal; use --yes")
			require.Empty(t, stderr.String())
		})
	}
}

// silent is a terminal without input.
type silent chan struct{}

func (s silent) Read([]byte) (int, error) {
	<-s
	return 0, errors.New("closed")
}

func TestConfirmEndsWithItsContext(t *testing.T) {
	s, _, _ := Fake("", 80, 24)
	in := make(silent)
	defer close(in)
	s.In = in
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Confirm(ctx, "Delete?")
	require.ErrorIs(t, err, context.Canceled)
}

func TestPrintError(t *testing.T) {
	a := clierr.New(clierr.BadInput, "see kcpctl schema", "kcp.yaml:3:4: spec.shrads: unknown field")
	b := errors.New("kcp.yaml:9:4: spec.version: not a version")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"none": {nil, ""},
		"one":  {b, "kcpctl: kcp.yaml:9:4: spec.version: not a version\n"},
		"details and hint": {
			clierr.New(clierr.NotReady, "fix the tag", "shard/alpha is not ready\nPod x: ImagePullBackOff\n    last line\x1b[2J\n"),
			"kcpctl: shard/alpha is not ready\n  Pod x: ImagePullBackOff\n      last line[2J\nhint: fix the tag\n",
		},
		"joined": {
			errors.Join(a, b),
			"kcpctl: 2 errors\n  kcp.yaml:3:4: spec.shrads: unknown field\n  kcp.yaml:9:4: spec.version: not a version\nhint: see kcpctl schema\n",
		},
		"joined and wrapped": {
			clierr.New(clierr.BadInput, "fix them", "read setup: %w", errors.Join(a, b)),
			"kcpctl: read setup\n  kcp.yaml:3:4: spec.shrads: unknown field\n  kcp.yaml:9:4: spec.version: not a version\nhint: fix them\nhint: see kcpctl schema\n",
		},
		"one joined": {errors.Join(b), "kcpctl: kcp.yaml:9:4: spec.version: not a version\n"},
		"of many, in a text": {
			clierr.New(clierr.NotReady, "fix it", "a/s1: lost\n    log\na/s2: lost\na/s3: lost\na/s4: lost\na/s5: lost\n3 were skipped"),
			"kcpctl: a/s1, a/s2, a/s3 and 2 more: lost\n      log\n  3 were skipped\nhint: fix it\n",
		},
		"of many, joined": {
			fmt.Errorf("apply: %w", errors.Join(errors.New("s1: no"), errors.New("s2: no"), errors.New("s3: no"), errors.New("s4: no"), errors.New("s5: no"))),
			"kcpctl: apply\n  s1, s2, s3 and 2 more: no\n",
		},
		"two causes in a sentence": {
			fmt.Errorf("close: %w, after %w", b, context.Canceled),
			"kcpctl: close: kcp.yaml:9:4: spec.version: not a version, after context canceled\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, out, stderr := Fake("", 0, 0)
			PrintError(s, tc.err)
			require.Equal(t, tc.want, stderr.String())
			require.Empty(t, out.String())
		})
	}
}

// Each problem is followed by its own next step, and equal ones are printed once.
func TestPrintErrorInPairs(t *testing.T) {
	lost := func(id, hint string) error {
		return clierr.About(id, clierr.Failed, hint, "%s holds data, and is no longer in the setup", id)
	}
	const remove, again = "run kcpctl remove-shard " + clierr.Names, "add it again, or pass --allow " + clierr.IDs
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"pairs": {
			errors.Join(lost("cache-server", again), lost("shard/alpha", remove), lost("shard/beta", remove)),
			"kcpctl: 3 errors\n" +
				"  cache-server holds data, and is no longer in the setup\n" +
				"    hint: add it again, or pass --allow cache-server\n" +
				"  shard/alpha holds data, and is no longer in the setup\n" +
				"  shard/beta holds data, and is no longer in the setup\n" +
				"    hint: shard/alpha, shard/beta: run kcpctl remove-shard alpha beta\n",
		},
		"one next step": {
			errors.Join(lost("shard/alpha", remove), lost("shard/beta", remove)),
			"kcpctl: 2 errors\n  shard/alpha holds data, and is no longer in the setup\n" +
				"  shard/beta holds data, and is no longer in the setup\nhint: run kcpctl remove-shard alpha beta\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, stderr := Fake("", 0, 0)
			PrintError(s, tc.err)
			require.Equal(t, tc.want, stderr.String())
		})
	}
}

// differences are a change, a deletion, and a creation, with values that Markdown and HTML would take for markup.
func differences(refused error) Difference {
	return Difference{
		Name: "demo", Summary: "1 create, 1 change, 1 delete, 21 unchanged", Refused: refused,
		Entries: []diff.Entry{
			{Object: "Deployment/kcp/demo-root", Component: "root-shard", Action: plan.Change, Changes: []diff.Change{
				{Path: "spec.replicas", Before: 1, After: 2},
				{Path: "metadata.annotations[note]", After: "```\n<b>|*x*"},
			}, Drift: []plan.Conflict{{Field: ".spec.replicas", Manager: "kubectl-scale"}}},
			{Object: "Secret/kcp/demo-root-server", Component: "root-shard", Action: plan.Change, Changes: diff.Mask([]diff.Change{
				{Path: "data[tls.key]", Before: "c2VjcmV0", After: "b3RoZXI="},
			})},
			{Object: "Service/kcp/demo-shard-beta", Component: "shard/beta", Action: plan.Delete},
		},
	}
}

func TestPrintMarkdown(t *testing.T) {
	s, out, _ := Fake("", 0, 0, utf8Lang)
	refused := errors.Join(
		clierr.About("shard/beta", clierr.Failed, "run kcpctl remove-shard "+clierr.Names, "shard/beta holds workspaces (eu/kcp), and is no longer in the setup"),
		clierr.New(clierr.Failed, "use the store of <prod>", "DIR does not hold the PKI"))
	require.NoError(t, PrintMarkdown(s.Out, differences(refused)))
	testutil.Golden(t, "diff.md", out.Bytes())
	require.NotContains(t, out.String(), "c2VjcmV0")
}

// A comment has a maximum size.
func TestPrintMarkdownOfMany(t *testing.T) {
	s, out, _ := Fake("", 0, 0)
	d := differences(nil)
	for i := range 2000 {
		e := d.Entries[0]
		e.Object = fmt.Sprintf("Deployment/kcp/demo-shard-s%d", i)
		d.Entries = append(d.Entries, e)
	}
	require.NoError(t, PrintMarkdown(s.Out, d))
	require.Less(t, out.Len(), 65536)
	require.Regexp(t, `\| \| and \d+ more \| \| \|\n`, out.String())
	require.Regexp(t, `The details of \d+ more objects are left out: .kcpctl diff. shows them`, out.String())
}

func TestPrintPlan(t *testing.T) {
	item := func(cluster, component, kind, name string, a plan.Action) plan.Item {
		return plan.Item{
			Ref:       plan.Ref{Cluster: cluster, GroupVersionKind: schema.GroupVersionKind{Kind: kind}, Namespace: "kcp", Name: name},
			Component: topology.ID(component), Action: a,
		}
	}
	one := []plan.Item{
		item("eu", "root-shard", "Deployment", "demo-root", plan.Create),
		item("eu", "root-shard", "Service", "demo-root", plan.Change),
		item("eu", "shard/alpha", "Service", "demo-shard-alpha", plan.Unchanged),
		item("eu", "front-proxy/main", "Service", "demo-front-proxy-main", plan.Create),
		item("eu", "root-shard", "ConfigMap", "demo-root-old", plan.Delete),
		item("eu", "", "ConfigMap", "demo-old", plan.Delete),
	}
	var many []plan.Item
	for i := range 12 {
		id, object := fmt.Sprintf("shard/s%d", i), fmt.Sprintf("demo-shard-s%d", i)
		many = append(many, item("eu", id, "Secret", object+"-server", plan.Create), item("eu", id, "Deployment", object, plan.Change))
		if i == 3 {
			many = append(many, item("eu", id, "Service", object, plan.Create))
		}
	}
	for name, items := range map[string][]plan.Item{
		"many":        append(one[:1:1], many...),
		"one-cluster": one,
		"clusters":    append(one[:2:2], item("us", "shard/beta", "Deployment", "demo-shard-beta", plan.Create)),
		"nothing":     one[2:3],
		"workspaces": append(one[:1:1], plan.Item{
			Ref:       plan.Ref{Workspace: "root", GroupVersionKind: schema.GroupVersionKind{Kind: "Workspace"}, Name: "team-a"},
			Component: "workspace/root:team-a", Action: plan.Create,
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s, out, _ := Fake("", 0, 0)
			PrintPlan(s.Out, &plan.Plan{Items: items})
			testutil.Golden(t, "plan-"+name+".golden", out.Bytes())
		})
	}
}

func TestPrintConflicts(t *testing.T) {
	s, _, stderr := Fake("", 0, 0)
	PrintConflicts(s.Err, []plan.Conflict{
		{Object: "Deployment/kcp/demo-root", Field: ".spec.replicas", Manager: "kubectl-scale", Leave: "set replicas: null for root-shard"},
		{Ref: plan.Ref{GroupVersionKind: schema.GroupVersionKind{Kind: "Service"}, Namespace: "kcp", Name: "demo-shard-alpha"}, Field: ".spec.type", Manager: "Helm"},
	})
	testutil.Golden(t, "conflicts.golden", stderr.Bytes())
}

func TestPrintManyConflicts(t *testing.T) {
	s, _, stderr := Fake("", 0, 0)
	var conflicts []plan.Conflict
	for i := range 100 {
		conflicts = append(conflicts, plan.Conflict{Object: fmt.Sprintf("Deployment/kcp/demo-shard-s%d", i), Field: ".spec.replicas", Manager: "hpa"})
	}
	PrintConflicts(s.Err, conflicts)
	require.Contains(t, stderr.String(), "Deployment/kcp/demo-shard-s0, Deployment/kcp/demo-shard-s1, Deployment/kcp/demo-shard-s2 and 97 more   .spec.replicas   hpa\n")
	require.Equal(t, 1, strings.Count(stderr.String(), ".spec.replicas"))
}

func TestPrintDiff(t *testing.T) {
	entry := func(component, object string, changes ...diff.Change) diff.Entry {
		return diff.Entry{Object: object, Component: component, Cluster: "eu", Action: plan.Change, Changes: changes}
	}
	level := diff.Change{Path: "spec.template.spec.containers[kcp].args[--v]", Before: "--v=2", After: "--v=4"}
	entries := []diff.Entry{entry("root-shard", "Deployment/kcp/demo-root", level)}
	for i := range 12 {
		name := fmt.Sprintf("s%d", i)
		changes := []diff.Change{{Path: "metadata.annotations[name]", After: "is " + name}, level}
		if i == 5 {
			changes = append(changes, diff.Change{Path: "spec.replicas", Before: 1, After: 2})
		}
		entries = append(entries, entry("shard/"+name, "Deployment/kcp/demo-shard-"+name, changes...))
	}
	entries[4].Drift = []plan.Conflict{{Field: ".spec.replicas", Manager: "kubectl-scale"}}
	for name, all := range map[string]bool{"alike": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			s, out, _ := Fake("", 0, 0)
			PrintDiff(s.Out, entries, all)
			testutil.Golden(t, "diff-"+name+".golden", out.Bytes())
		})
	}
}

func TestExpiry(t *testing.T) {
	require.Equal(t, "expires in 3d", Expiry(72*time.Hour))
	require.Equal(t, "expired 11s ago", Expiry(-11*time.Second))
	require.Equal(t, "0s", Age(-time.Hour), "the clock of a server may be ahead")
}

// On a terminal long lines of a tree continue below, and the branches are not interrupted.
func TestTreeOnANarrowTerminal(t *testing.T) {
	tree := func(s *Stream) Node {
		long := "stopping: port 6449 of shard/alpha is taken by another process"
		return Node{Cells: []string{"kcp demo", "NotReady", "https://127.0.0.1:6443"}, Children: []Node{
			{Cells: []string{"root-shard", "Ready", long}, Children: []Node{{Cells: []string{"etcd"}}}},
			{Cells: []string{s.Yellow("drift: 22 objects differ from the setup (see kcpctl diff)")}},
			{Cells: []string{"next: kcpctl up --local -f examples/sharded.yaml"}},
		}}
	}
	for width, want := range map[int]string{
		56: `kcp demo       NotReady  https://127.0.0.1:6443
├─ root-shard  Ready     stopping: port 6449 of
│  │                     shard/alpha is taken by another
│  │                     process
│  └─ etcd
├─ drift: 22 objects differ from the setup (see kcpctl
│  diff)
└─ next: kcpctl up --local -f examples/sharded.yaml
`,
		36: `kcp demo       NotReady
│    https://127.0.0.1:6443
├─ root-shard  Ready
│  │    stopping: port 6449 of
│  │    shard/alpha is taken by
│  │    another process
│  └─ etcd
├─ drift: 22 objects differ from the
│  setup (see kcpctl diff)
└─ next: kcpctl up --local -f
   examples/sharded.yaml
`,
	} {
		s, out, _ := Fake("", width, 24, "LC_ALL=C.UTF-8", "NO_COLOR=1")
		s.Out.Tree(tree(s.Out))
		require.Equal(t, want, out.String())
		coloured, out, _ := Fake("", width, 24, "LC_ALL=C.UTF-8")
		coloured.Out.Tree(tree(coloured.Out))
		require.Contains(t, out.String(), "\x1b[33mdrift: 22 objects")
		require.Equal(t, want, regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(out.String(), ""))
	}
}
