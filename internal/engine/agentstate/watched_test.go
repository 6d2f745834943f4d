package agentstate_test

import (
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
)

// What api-syncagent v0.7.0 logs about the URLs of shards, between other lines.
const (
	starts = `I1123 02:40:02.864523       1 leaderelection.go:258] "Attempting to acquire leader lease..." lock="demo/syncagent.demo-widgets"
{"level":"info","time":"2026-11-23T02:40:02.897Z","logger":"kcp-apiexport-cluster-provider","caller":"cache/controller.go:301","msg":"new endpointslice object","object":{"name":"widgets"}}
`
	fails = `{"level":"error","time":"2026-11-23T02:40:02.961Z","logger":"kcp-apiexport-cluster-provider","caller":"provider/provider.go:277","msg":"failed to watch endpoint","url":"https://beta/services/apiexport/abc/widgets","error":"connection refused"}
`
	works = `{"level":"info","time":"2026-11-23T02:40:03.961Z","logger":"kcp-apiexport-cluster-provider","caller":"cache/controller.go:301","msg":"new endpoint object","url":"https://beta/services/apiexport/abc/widgets","object":{"name":"widgets"}}
`
)

// prefixed begins each line with a replica.
func prefixed(replica, log string) string {
	return replica + strings.ReplaceAll(strings.TrimSuffix(log, "\n"), "\n", "\n"+replica) + "\n"
}

func TestEndpointsThatAnAgentDoesNotWatch(t *testing.T) {
	const first, second = "[pod/a/api-syncagent] ", "[pod/b/api-syncagent] "
	beta, err := url.Parse("https://beta/services/apiexport/abc/widgets")
	require.NoError(t, err)
	gamma, err := url.Parse("https://gamma/services/apiexport/abc/widgets")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		log    string
		failed bool
	}{
		"starts":                       {starts, false},
		"works":                        {starts + works, false},
		"fails":                        {starts + fails, true},
		"works later":                  {starts + fails + works, false},
		"works no more":                {starts + works + fails, true},
		"one replica fails":            {prefixed(first, starts+fails) + prefixed(second, works), true},
		"both replicas fail":           {prefixed(first, fails) + prefixed(second, fails), true},
		"a line that is cut, no JSON":  {fails[:80], false},
		"the message in another place": {`{"msg":"other","error":"failed to watch endpoint"}` + "\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 100, len(tc.log)} {
				var log agentstate.WatchLog
				_, err := io.CopyBuffer(struct{ io.Writer }{&log}, struct{ io.Reader }{strings.NewReader(tc.log)}, make([]byte, size))
				require.NoError(t, err)
				require.Equal(t, tc.failed, log.Failed())
				got := log.Unwatched([]agentstate.Endpoint{{URL: gamma}, {URL: beta}})
				if !tc.failed {
					require.Empty(t, got)
					continue
				}
				require.Equal(t, []agentstate.Unwatched{{Endpoint: agentstate.Endpoint{URL: beta}, Err: "connection refused"}}, got)
				require.Equal(t, "does not watch "+beta.String()+" (connection refused)", agentstate.Unwatching(got))
				require.Empty(t, log.Unwatched([]agentstate.Endpoint{{URL: gamma}}), "an endpoint that does not exist any more")
			}
		})
	}
}
