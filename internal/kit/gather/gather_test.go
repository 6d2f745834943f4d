package gather

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessages(t *testing.T) {
	each := func(format string, names ...string) []string {
		var out []string
		for _, n := range names {
			out = append(out, strings.ReplaceAll(format, "NAME", n))
		}
		return out
	}
	five := []string{"s1", "s2", "s3", "s4", "s5"}
	for name, tc := range map[string]struct{ in, want []string }{
		"none": {nil, nil},
		"a few stay": {
			each("shard/NAME: not ready", five[:4]...), each("shard/NAME: not ready", five[:4]...),
		},
		"many": {
			each("shard/NAME: not ready", five...), []string{"shard/s1, shard/s2, shard/s3 and 2 more: not ready"},
		},
		"names in the cause": {
			each(`shard/NAME: Get "https://demo-shard-NAME.kcp.svc:6443/readyz": demo-shard-NAME-7d9cNAME:6443: refused`, five...),
			[]string{`shard/s1, shard/s2, shard/s3 and 2 more: Get "https://demo-shard-….kcp.svc:6443/readyz": demo-shard-…:6443: refused`},
		},
		"the first lines decide": {
			[]string{"a/s1: crashed\n    log 1", "a/s2: crashed\n    log 2", "a/s3: crashed", "a/s4: crashed", "a/s5: crashed"},
			[]string{"a/s1, a/s2, a/s3 and 2 more: crashed\n    log 1"},
		},
		"subject in the middle": {
			each("KCP031: Secret kcp/NAME: not found", five...), []string{"KCP031: Secret kcp/s1, kcp/s2, kcp/s3 and 2 more: not found"},
		},
		"several causes, in order": {
			append(append(each("shard/NAME: x", five...), "root-shard: y"), each("shard/NAME: z", five...)...),
			[]string{"shard/s1, shard/s2, shard/s3 and 2 more: x", "root-shard: y", "shard/s1, shard/s2, shard/s3 and 2 more: z"},
		},
		"numbers are not names": {
			each("quota: NAME more pods", "1", "2", "3", "4", "5"), each("quota: NAME more pods", "1", "2", "3", "4", "5"),
		},
		"other differences": {
			[]string{"a/s1: 1 lost", "a/s2: 2 lost", "a/s3: 3 lost", "a/s4: 4 lost", "a/s5: 5 lost"},
			[]string{"a/s1: 1 lost", "a/s2: 2 lost", "a/s3: 3 lost", "a/s4: 4 lost", "a/s5: 5 lost"},
		},
		"one subject with many causes": {
			each("shard/a: needs NAME: missing here", five...), []string{"shard/a: needs s1, s2, s3 and 2 more: missing here"},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Messages(tc.in)) })
	}
}

func TestManyMessagesThatDiffer(t *testing.T) {
	var in []string
	for i := range 2000 {
		in = append(in, fmt.Sprintf("Deployment/kcp/d%d: %d fields", i, i))
	}
	require.Equal(t, in, Messages(in))
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 keys", 1: "1 key", 2: "2 keys"} {
		require.Equal(t, want, Count(n, "key", "keys"))
	}
}

func TestFew(t *testing.T) {
	require.Equal(t, "a, b", Few([]string{"a", "b"}, 2, ", "))
	require.Equal(t, "a, b, c", Few([]string{"a", "b", "c"}, 2, ", "))
	require.Equal(t, "a; b and 2 more", Few([]string{"a", "b", "c", "d"}, 2, "; "))
	require.Empty(t, Few(nil, 2, ", "))
}

func TestElide(t *testing.T) {
	for in, want := range map[string]string{
		"demo-alpha": "demo-…", "demo-alpha-7d9c-x:2379": "demo-…:2379", "alphabet": "alphabet", "xalpha": "xalpha",
		"alpha,alpha": "…,…", "https://alpha.kcp.svc": "https://….kcp.svc", "": "",
	} {
		require.Equal(t, want, Elide(in, "alpha"), in)
	}
}

func TestAlike(t *testing.T) {
	kind := func(s string) string { return s[:1] }
	var many []string
	for i := range Most + 1 {
		many = append(many, fmt.Sprintf("a%d", i))
	}
	require.Equal(t, [][]string{{"b0"}, many, {"b1"}}, Alike(append(append([]string{"b0"}, many...), "b1"), kind))
	var few [][]string
	for _, s := range many[1:] {
		few = append(few, []string{s})
	}
	require.Equal(t, few, Alike(many[1:], kind))
	require.Empty(t, Alike(nil, kind))
}

func TestNames(t *testing.T) {
	require.Equal(t, "shard/{a,b,...}", Names("shard/", []string{"a", "b", "c"}))
	require.Equal(t, "{a,b}", Names("", []string{"a", "b"}))
}

func TestWithout(t *testing.T) {
	for in, want := range map[string]string{
		"demo-alpha-server": "demo-…-server", "alpha": "…", "alphabet": "alphabet", "alphaalpha": "alphaalpha", "alpha alpha-1": "… …-1", "": "",
	} {
		require.Equal(t, want, Without(in, "alpha"), in)
	}
	require.Equal(t, "root", Without("root", ""))
}

func TestIn(t *testing.T) {
	require.Equal(t, []string{"a: b\n    c\n  d", "e"}, In("a: b\n    c\n  d\ne\n"))
	require.Empty(t, In(""))
}
