package record_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// A record of a release without formats is read, and written in the present format.
func TestARecordWithoutAFormat(t *testing.T) {
	old := []byte(`{"installation":"demo-x7k2m9qd","authoritiesApplied":"2026-11-23T20:00:00Z","data":{"shard/alpha":{"cluster":"eu","members":3}}}`)
	r, err := record.Decode(old)
	require.NoError(t, err)
	require.NoError(t, r.Writable())
	require.Zero(t, r.Format)
	require.Equal(t, time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC), r.AuthoritiesApplied)
	raw, err := r.Encode("v0.9.0", old)
	require.NoError(t, err)
	again, err := record.Decode(raw)
	require.NoError(t, err)
	require.True(t, r.Equal(again))
	require.NotZero(t, again.Format)

	// That release refuses what was written, with the next step.
	var read struct {
		AuthoritiesApplied time.Time `json:"authoritiesApplied"`
	}
	require.ErrorContains(t, json.Unmarshal(raw, &read), `"a later kcpctl (upgrade kcpctl to at least v0.9.0)"`)
}

// What a later kcpctl has added stays, also in parts, and in a record that is long and compressed.
func TestFieldsOfALaterKcpctlSurvive(t *testing.T) {
	for _, shards := range []int{1, 1000} {
		r := &record.Record{Installation: "demo-x7k2m9qd", Data: map[topology.ID]record.Data{}}
		for i := range shards {
			r.Data[topology.IDOf(topology.Shard, fmt.Sprintf("s%d", i))] = record.Data{Cluster: "eu", Etcd: "managed " +
				"etcd/alpha-with-a-long-name"}
		}
		raw, err := r.Encode("v0.9.0", nil)
		require.NoError(t, err)
		later := tree(t, raw)
		later["more"] = "kept"
		later["data"].(map[string]any)["shard/s0"].(map[string]any)["disk"] = "kept"
		later["format"] = map[string]any{"number": 9, "minWriter": 1, "release": "v0.9.0"}
		previous, err := json.Marshal(later)
		require.NoError(t, err)

		known, err := record.Decode(previous)
		require.NoError(t, err)
		require.NoError(t, known.Writable())
		raw, err = known.Remove(true, "shard/s0").Encode("v0.9.0", previous)
		require.NoError(t, err)
		got := tree(t, raw)
		require.Equal(t, "kept", got["more"])
		require.Equal(t, map[string]any{"cluster": "eu", "etcd": "managed etcd/alpha-with-a-long-name", "removed": true, "emptied": true, "disk": "kept"},
			got["data"].(map[string]any)["shard/s0"])
		require.InDelta(t, 9, got["format"].(map[string]any)["number"], 0)
	}
}

func tree(t *testing.T, raw []byte) (out map[string]any) {
	t.Helper()
	if z, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
		raw, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

func TestARecordOfALaterKcpctlIsNotWritten(t *testing.T) {
	later := []byte(`{"installation":"demo-x7k2m9qd","format":{"number":7,"minWriter":7,"release":"v2.1.0"}}`)
	r, err := record.Decode(later)
	require.NoError(t, err, "it can be read")
	for _, err := range []error{r.Writable(), encodeOver(later)} {
		require.ErrorContains(t, err, "the record of installation demo-x7k2m9qd has format 7, and this kcpctl knows "+
			"formats up to ")
		require.Equal(t, "upgrade kcpctl to at least v2.1.0", clierr.Hint(err))
	}
}

func encodeOver(previous []byte) error {
	_, err := (&record.Record{Installation: "demo-x7k2m9qd"}).Encode("v0.9.0", previous)
	return err
}

func TestCheckInstallation(t *testing.T) {
	r := &record.Record{Installation: "demo-x7k2m9qd"}
	require.NoError(t, r.CheckInstallation("", "eu"))
	require.NoError(t, r.CheckInstallation("demo-x7k2m9qd", "eu"))
	require.NoError(t, (&record.Record{}).CheckInstallation("demo-x7k2m9qd", "eu"))
	require.ErrorContains(t, r.CheckInstallation("demo-aaaaaaaa", "eu"),
		"the setup file is for installation demo-aaaaaaaa (metadata.installation), and eu has installation "+
			"demo-x7k2m9qd; nothing was changed")
}
