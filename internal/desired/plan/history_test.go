package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

func revision(setup string) plan.Revision {
	return plan.Revision{Time: testutil.Start(), Version: "v1", User: "me@host", Setup: []byte(setup)}
}

// remembered is a history of setups that were applied one after another.
func remembered(setups ...string) []plan.Revision {
	var h []plan.Revision
	for _, s := range setups {
		h = plan.Remember(h, revision(s))
	}
	return h
}

func numbers(h []plan.Revision) []int {
	out := []int{}
	for _, r := range h {
		out = append(out, r.Number)
	}
	return out
}

func TestRemember(t *testing.T) {
	many := make([]string, 13)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, tc := range map[string]struct {
		setups []string
		want   []int
	}{
		"first":            {[]string{"a"}, []int{1}},
		"another":          {[]string{"a", "b"}, []int{1, 2}},
		"the same again":   {[]string{"a", "a", "b", "b"}, []int{1, 2}},
		"back again":       {[]string{"a", "b", "a"}, []int{1, 2, 3}},
		"the oldest leave": {many, []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, numbers(remembered(tc.setups...))) })
	}
}

func TestRememberLeavesItsArgumentAlone(t *testing.T) {
	h := append(make([]plan.Revision, 0, 8), remembered("a")...)
	b, c := plan.Remember(h, revision("b")), plan.Remember(h, revision("c"))
	require.Equal(t, "b", string(b[1].Setup))
	require.Equal(t, "c", string(c[1].Setup))
}

func TestHistorySurvivesEncoding(t *testing.T) {
	for name, h := range map[string][]plan.Revision{
		"none":          nil,
		"short":         remembered("a: 1\n", "a: 2\n"),
		"long":          remembered("a: 1\n", strings.Repeat("comment\n", 4000)),
		"empty setup":   remembered("a", ""),
		"local time":    plan.Remember(nil, plan.Revision{Time: testutil.Start().In(time.FixedZone("", 7200)).Add(time.Millisecond), Setup: []byte("x")}),
		"just readable": remembered(strings.Repeat("x", 8<<10), strings.Repeat("x", 8<<10+1)),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := plan.EncodeHistory(h, nil)
			require.NoError(t, err)
			data["other"] = []byte("ignored")
			got, err := plan.DecodeHistory(data)
			require.NoError(t, err)
			require.Equal(t, h, got)
		})
	}
}

// withFiles are revisions with the texts of their files.
func withFiles(files ...string) []plan.Revision {
	var h []plan.Revision
	for i, f := range files {
		r := revision(fmt.Sprint("setup ", i))
		r.File = []byte(f)
		h = plan.Remember(h, r)
	}
	return h
}

func TestHistoryKeepsFiles(t *testing.T) {
	h := withFiles("# mine\na: 1\n", strings.Repeat("# a comment\n", 4000))
	h = append(h, plan.Revision{Number: 3, Time: testutil.Start(), Setup: []byte("of an earlier kcpctl")})
	data, err := plan.EncodeHistory(h, nil)
	require.NoError(t, err)
	require.Equal(t, "# mine\na: 1\n", string(data["file.1.yaml"]))
	require.Less(t, len(data["file.2.yaml.gz"]), 1000)
	got, err := plan.DecodeHistory(data)
	require.NoError(t, err)
	require.Equal(t, h, got)
	require.Nil(t, got[2].File)
	for key := range data {
		require.True(t, plan.IsHistory(key), key)
	}
	for _, other := range []string{"owner.json", "setup.yaml", "file.x.yaml", "file.01.yaml", "setup.1.yaml.gz.gz", "other.1.yaml"} {
		require.False(t, plan.IsHistory(other), other)
	}
}

// Files never displace setups: without the setup, a revision is of no use.
func TestFilesAreDroppedBeforeSetups(t *testing.T) {
	h := withFiles(noise(300<<10), noise(300<<10), noise(300<<10))
	data, err := plan.EncodeHistory(h, nil)
	require.NoError(t, err)
	got, err := plan.DecodeHistory(data)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, numbers(got))
	require.Nil(t, got[0].File)
	require.Equal(t, h[1:], got[1:])
	size := 0
	for _, value := range data {
		size += len(value)
	}
	require.Less(t, size, 800<<10, "a Secret can contain 1 MiB, with the record and the clusters")
}

// noise cannot be compressed.
func noise(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

func TestLongSetupsAreCompressed(t *testing.T) {
	data, err := plan.EncodeHistory(remembered("short", strings.Repeat("comment\n", 4000)), nil)
	require.NoError(t, err)
	require.Equal(t, "short", string(data["setup.1.yaml"]))
	require.Less(t, len(data["setup.2.yaml.gz"]), 1000)
	require.Len(t, data, 3)
}

// A Secret can contain 1 MiB. The oldest revisions are dropped, the newest never.
func TestHistoryFitsIntoASecret(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{})
	noise := func(size int) string {
		b := make([]byte, size)
		_, _ = rnd.Read(b)
		return string(b)
	}
	for name, tc := range map[string]struct {
		sizes []int
		want  []int
	}{
		"all fit":           {[]int{200 << 10, 200 << 10, 200 << 10}, []int{1, 2, 3}},
		"the oldest do not": {[]int{300 << 10, 300 << 10, 300 << 10}, []int{2, 3}},
		"one alone is more": {[]int{10, 800 << 10}, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			var h []plan.Revision
			for _, size := range tc.sizes {
				h = plan.Remember(h, revision(noise(size)))
			}
			data, err := plan.EncodeHistory(h, nil)
			require.NoError(t, err)
			require.Len(t, data, len(tc.want)+1)
			got, err := plan.DecodeHistory(data)
			require.NoError(t, err)
			require.Equal(t, tc.want, numbers(got))
			require.Equal(t, h[len(h)-1], got[len(got)-1])
		})
	}
}

func TestDecodeHistoryRefusesWhatItCannotRead(t *testing.T) {
	for name, data := range map[string]map[string][]byte{
		"no JSON":        {"history.json": []byte("{")},
		"no gzip":        {"history.json": []byte(`[{"revision": 3}]`), "setup.3.yaml.gz": []byte("plain")},
		"gzip cut short": {"history.json": []byte(`[{"revision": 3}]`), "setup.3.yaml.gz": []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.DecodeHistory(data)
			require.ErrorContains(t, err, "decode ")
		})
	}
}
