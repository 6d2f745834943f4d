package plan

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil"
)

func revision(setup string) Revision {
	return Revision{Time: testutil.Start(), Version: "v0.1.0", User: "host/1/me", Setup: []byte(setup)}
}

func TestHistoryKeepsTheLastSetups(t *testing.T) {
	var h []Revision
	for i := range 12 {
		h = Remember(h, revision(fmt.Sprint("setup ", i)))
		h = Remember(h, revision(fmt.Sprint("setup ", i)))
	}
	require.Len(t, h, historyLength)
	require.Equal(t, 3, h[0].Number)
	require.Equal(t, 12, h[9].Number)
	require.Equal(t, "setup 11", string(h[9].Setup))
}

func TestRememberDoesNotTouchTheHistoryItExtends(t *testing.T) {
	h := make([]Revision, 0, 4)
	h = Remember(h, revision("a"))
	one, two := Remember(h, revision("b")), Remember(h, revision("c"))
	require.Equal(t, "b", string(one[1].Setup))
	require.Equal(t, "c", string(two[1].Setup))
}

func TestHistorySurvivesEncoding(t *testing.T) {
	h := Remember(nil, revision("small"))
	h = Remember(h, revision(strings.Repeat("large", plainSize)))
	data, err := EncodeHistory(h)
	require.NoError(t, err)
	require.Equal(t, "small", string(data["setup.1.yaml"]), "what is small can be read by people")
	require.Less(t, len(data["setup.2.yaml.gz"]), plainSize)
	got, err := DecodeHistory(data)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(h, got))
}

func TestHistoryFitsIntoASecret(t *testing.T) {
	var h []Revision
	for range 5 {
		noise := make([]byte, 300<<10)
		_, err := rand.Read(noise)
		require.NoError(t, err)
		h = Remember(h, revision(string(noise)))
	}
	data, err := EncodeHistory(h)
	require.NoError(t, err)
	got, err := DecodeHistory(data)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(h[3:], got), "the last that fit")
}

func TestDamagedHistoryIsAnError(t *testing.T) {
	for name, data := range map[string]map[string][]byte{
		"index": {historyKey: []byte("x")},
		"setup": {historyKey: []byte(`[{"revision":1}]`), "setup.1.yaml.gz": []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeHistory(data)
			require.Error(t, err)
		})
	}
}
