package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
)

func TestLastAgentError(t *testing.T) {
	const before = `{"level":"error","msg":"earlier"}` + "\n"
	for name, tc := range map[string]struct{ log, want string }{
		"none":               {`{"level":"info","msg":"Starting kcp Sync Agent"}`, ""},
		"the last one":       {before + `{"level":"fatal","msg":"Sync Agent has encountered an error","error":"no such host"}` + "\n" + `{"level":"info","msg":"x"}`, "Sync Agent has encountered an error: no such host"},
		"of one of the pods": {before + `demo-agent-a-1 agent {"level":"ERROR","msg":"forbidden"}`, "forbidden"},
		"other lines":        {"2026/11/22 Invalid command line {", ""},
	} {
		require.Equal(t, tc.want, deploy.LastAgentError(tc.log), name)
	}
}
