package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

func TestChangesThatWouldLoseData(t *testing.T) {
	const (
		managed  = sharded
		external = minimal + "spec: {etcd: {external: {endpoints: [\"http://etcd:2379\"]}}, shards: [{name: alpha}]}\n"
		embedded = minimal + "spec: {shards: [{name: alpha, etcd: {embedded: {}}}]}\n"
		three    = minimal + "spec: {etcd: {managed: {replicas: 3}}, shards: [{name: alpha}]}\n"
		prefix   = minimal + "spec: {etcd: {external: {endpoints: [\"http://etcd:2379\"]}}, shards: [{name: alpha, etcd: {external: {prefix: /other}}}]}\n"
	)
	for name, tc := range map[string]struct {
		from, to string
		allow    bool
		want     []string // the components that are refused
	}{
		"another etcd":                      {from: managed, to: external, want: []string{"root-shard", "shard/alpha"}},
		"another etcd, and the data moved":  {from: managed, to: external, allow: true},
		"from embedded":                     {from: embedded, to: managed, want: []string{"shard/alpha"}},
		"another prefix":                    {from: external, to: prefix, want: []string{"shard/alpha"}},
		"more members":                      {from: managed, to: three, want: []string{"etcd/alpha", "etcd/root"}},
		"more members, whatever is allowed": {from: managed, to: three, allow: true, want: []string{"etcd/alpha", "etcd/root"}},
		"other flags":                       {from: managed, to: strings.Replace(managed, "spec: {", "spec: {defaults: {logLevel: 4}, ", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.from, func(t *testing.T, w *world) {
				w.mustRun(t)
				w = newWorld(t, topologyOf(t, tc.to), w.rt)
				w.rt.Use(w.top)
				if tc.allow {
					w.up.Options.AllowDataChange = everything
				}
				_, err := w.run(t)
				if len(tc.want) == 0 {
					require.NoError(t, err)
					return
				}
				require.Equal(t, clierr.Failed, clierr.Code(err))
				require.NotEmpty(t, clierr.Hint(err))
				lines := strings.Split(err.Error(), "\n")
				require.Len(t, lines, len(tc.want))
				for i, id := range tc.want {
					require.Contains(t, lines[i], id)
				}
				require.Empty(t, w.rt.Calls())
			})
		})
	}
}
