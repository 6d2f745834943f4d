package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/client/kind"
)

// logs are containers that a test starts, and what they log.
type logs struct {
	*follower
	mu      sync.Mutex
	there   []source
	open    map[source]*io.PipeWriter
	queries []string
	refuse  error
	notes   []string
	text    bytes.Buffer
	// begin lets the follower look for the first time: not before the test has set the pods.
	begin func()
}

func newLogs() *logs {
	l := &logs{open: map[source]*io.PipeWriter{}, begin: func() {}}
	l.follower = &follower{
		sources: func() []source {
			l.mu.Lock()
			defer l.mu.Unlock()
			return append([]source(nil), l.there...)
		},
		read: l.serve, out: &lineWriter{w: &l.text},
		notify: func(format string, args ...any) { l.notes = append(l.notes, fmt.Sprintf(format, args...)) },
	}
	return l
}

// serve is the API server.
func (l *logs) serve(ctx context.Context, src source, q url.Values) error {
	l.mu.Lock()
	l.queries = append(l.queries, src.pod+"?"+q.Encode())
	if l.refuse != nil {
		defer l.mu.Unlock()
		return l.refuse
	}
	r, w := io.Pipe()
	l.open[src] = w
	l.mu.Unlock()
	defer context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })()
	return l.out.copy(src, r)
}

// have replaces the containers that there are.
func (l *logs) have(all ...source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there = all
	l.begin()
}

func (l *logs) say(src source, line string) { fmt.Fprintln(l.open[src], line) }

// follow runs a test while logs are followed, and returns how that ended.
func follow(t *testing.T, o Options, test func(l *logs)) *logs {
	t.Helper()
	l := newLogs()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // also if the test fails: nothing else ends what it has begun
		ended := make(chan error, 1)
		begun := make(chan struct{})
		l.begin = sync.OnceFunc(func() { close(begun) })
		go func() {
			<-begun
			ended <- l.run(ctx, o)
		}()
		test(l)
		l.begin()
		synctest.Wait()
		cancel()
		require.NoError(t, <-ended, "it is interrupted, as it has to be")
	})
	return l
}

// look waits until it was looked for containers again.
func look() { time.Sleep(followInterval); synctest.Wait() }

var (
	rootA = source{"root-a", "kcp", "1"}
	rootB = source{"root-b", "kcp", "2"}
)

func TestFollowGoesOnWithNewPods(t *testing.T) {
	l := follow(t, Options{Tail: new(int64(3))}, func(l *logs) {
		l.have(rootA)
		look()
		l.say(rootA, "one")
		synctest.Wait()
		waits := rootB
		waits.id = ""
		l.have(rootA, waits) // a rolling restart: the next pod has no container yet
		look()
		l.have(rootA, rootB)
		look()
		l.say(rootB, "two")
		l.say(rootA, "bye")
		synctest.Wait()
		l.open[rootA].Close()
		l.have(rootB)
		look()
		l.say(rootB, "three")
	})
	require.Equal(t, "one\n[pod/root-b/kcp] two\n[pod/root-a/kcp] bye\n[pod/root-b/kcp] three\n", l.text.String())
	require.Equal(t, []string{"root-a?container=kcp&tailLines=3", "root-b?container=kcp"}, l.queries)
	require.Empty(t, l.notes)
}

func TestFollowGoesOnWithARestartedContainer(t *testing.T) {
	l := follow(t, Options{}, func(l *logs) {
		l.have(rootA)
		look()
		l.say(rootA, "crash")
		synctest.Wait()
		l.open[rootA].Close()
		look()
		again := rootA
		again.id = "3"
		l.have(again)
		look()
		l.say(again, "again")
	})
	require.Equal(t, "crash\nagain\n", l.text.String(), "one pod needs no prefix")
	require.Len(t, l.queries, 2)
}

func TestFollowTakesUpALogThatBrokeOff(t *testing.T) {
	l := follow(t, Options{Tail: new(int64(3))}, func(l *logs) {
		l.have(rootA)
		look()
		l.say(rootA, "one")
		synctest.Wait()
		l.open[rootA].CloseWithError(io.ErrUnexpectedEOF)
		look()
		l.say(rootA, "two")
		synctest.Wait()
		l.have() // the pod is gone, and with it the connection
		l.open[rootA].CloseWithError(io.ErrUnexpectedEOF)
		look()
		look()
	})
	require.Equal(t, "one\ntwo\n", l.text.String())
	require.Equal(t, []string{"root-a?container=kcp&tailLines=3", "root-a?container=kcp&tailLines=0"}, l.queries)
	require.Equal(t, []string{"the log of Pod/root-a was interrupted: unexpected EOF; retrying"}, l.notes)
}

func TestFollowSaysOnceThatItCannotRead(t *testing.T) {
	l := follow(t, Options{Tail: new(int64(3))}, func(l *logs) {
		l.refuse = errors.New("no node")
		l.have(rootA)
		look()
		look()
		look()
	})
	require.Equal(t, []string{"no node; retrying"}, l.notes)
	require.Greater(t, len(l.queries), 1)
	require.Equal(t, l.queries[0], l.queries[1], "nothing was read: it still begins where it should")
}

func TestFollowEndsWithPermanentErrors(t *testing.T) {
	forbidden := apierrors.NewForbidden(kind.Pods.GroupResource(), "root-a", errors.New("no"))
	for name, tc := range map[string]struct {
		refuse error
		sink   io.Writer
		want   string
	}{
		"not allowed":          {refuse: forbidden, sink: io.Discard, want: "forbidden"},
		"the output is closed": {sink: brokenPipe{}, want: "write log: broken pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLogs()
				l.refuse, l.out.w = tc.refuse, tc.sink
				l.have(rootA)
				ended := make(chan error, 1)
				go func() { ended <- l.run(t.Context(), Options{}) }()
				look()
				if tc.refuse == nil {
					l.say(rootA, "one")
				}
				require.ErrorContains(t, <-ended, tc.want)
			})
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestLogSources(t *testing.T) {
	pod := func(name string, containers ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "kcp", ContainerID: "containerd://1"}}
		return p
	}
	require.Equal(t, []source{
		{"a", "kcp", "containerd://1"}, {"a", "side", ""}, {"b", "kcp", "containerd://1"},
	}, sources([]*corev1.Pod{pod("a", "kcp", "side"), pod("b", "kcp")}))
}

func TestLinesOfSeveralPlacesNameThem(t *testing.T) {
	for name, tc := range map[string]struct {
		sources []source
		want    string
	}{
		"one pod":        {[]source{rootA}, "line\nlast\n"},
		"two pods":       {[]source{rootA, rootB}, "[pod/root-a/kcp] line\n[pod/root-a/kcp] last\n"},
		"two containers": {[]source{rootA, {"root-a", "side", "1"}}, "[pod/root-a/kcp] line\n[pod/root-a/kcp] last\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			out := &lineWriter{w: &text}
			out.add(tc.sources)
			require.NoError(t, out.copy(rootA, strings.NewReader("line\nlast")))
			require.Equal(t, tc.want, text.String())
		})
	}
}

func TestQueryOfALog(t *testing.T) {
	for name, tc := range map[string]struct {
		o    Options
		want string
	}{
		"all":        {Options{}, "container=kcp"},
		"previous":   {Options{Previous: true}, "container=kcp&previous=true"},
		"no line":    {Options{Tail: new(int64(0))}, "container=kcp&tailLines=0"},
		"since":      {Options{Since: 1500 * time.Millisecond}, "container=kcp&sinceSeconds=2"},
		"since time": {Options{SinceTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, "container=kcp&sinceTime=2026-01-02T03%3A04%3A05Z"},
		"timestamps": {Options{Timestamps: true}, "container=kcp&timestamps=true"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, query(rootA, tc.o).Encode()) })
	}
}
