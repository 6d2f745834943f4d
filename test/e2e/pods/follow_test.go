package pods_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// text can be read while it is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Split(t.b.String(), "\n")
}

func TestFollowGoesOnThroughARollout(t *testing.T) {
	t.Parallel()
	const serving = "serving client traffic"
	c := newCluster(t, "kube-e2e-follow", "a")
	comp := c.etcd(0, nil)
	c.until(comp, isStateReady)
	pods := slices.Collect(maps.Keys(c.podsNow(comp)))
	require.Len(t, pods, 1)
	first := "[pod/" + pods[0] + "/etcd] "

	ctx, cancel := context.WithCancel(t.Context())
	ended, out := make(chan error, 1), &text{}
	go func() { ended <- c.Logs(ctx, comp, run.LogOptions{Follow: true}, out) }()
	says := func(what string) func() bool {
		return func() bool { return strings.Contains(strings.Join(out.lines(), "\n"), what) }
	}
	require.Eventually(t, says(serving), podWait, 50*time.Millisecond)
	require.False(t, says("[pod/")(), "there is one pod")

	c.etcd(0, func(pod map[string]any) {
		container(pod)["env"] = []any{map[string]any{"name": "GENERATION", "value": "2"}}
	})
	c.until(comp, isStateReady)
	require.Eventually(t, func() bool {
		for _, line := range out.lines() {
			if strings.HasPrefix(line, "[pod/") && !strings.HasPrefix(line, first) && strings.Contains(line, serving) {
				return true
			}
		}
		return false
	}, podWait, 50*time.Millisecond, "the log of the new pod")
	cancel()
	require.NoError(t, <-ended)
}
