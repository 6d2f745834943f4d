package cmd

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A shard of the setup that kcp does not have yet is not called unknown.
func TestCordonOfAShardThatIsNotRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, path := applied(t, topologytest.Header+"spec: {shards: [{name: alpha}]}\n", twoMore)
		_, _, err := typed(t, rt, path, "cordon beta")
		require.ErrorContains(t, err, `shard "beta" is not registered in kcp yet`)
		require.Contains(t, clierr.Hint(err), "kcpctl status")
		_, _, err = typed(t, rt, path, "cordon bta")
		require.ErrorContains(t, err, `there is no shard "bta"`)
		_, _, err = typed(t, rt, path, "cordon alpha")
		require.NoError(t, err)
	})
}
