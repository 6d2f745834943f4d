package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

const utf8Lang = "LANG=en_US.UTF-8"

// script is a failing run: events with the time before each.
var script = []struct {
	after time.Duration
	event run.Event
}{
	{0, run.Event{Scope: run.Step, Name: "checks", Status: run.Running}},
	{800 * time.Millisecond, run.Event{Scope: run.Step, Name: "checks", Status: run.Done, Message: "11 passed"}},
	{0, run.Event{Scope: run.Step, Name: "certificates", Status: run.Running}},
	{400 * time.Millisecond, run.Event{Scope: run.Step, Name: "certificates", Status: run.Done, Message: "6 kept, 3 created, next expiry 2027-11-20"}},
	{0, run.Event{Scope: run.Component, Name: "cache-server", Status: run.Pending}},
	{0, run.Event{Scope: run.Component, Name: "root-shard", Status: run.Pending, Needs: []string{"cache-server"}}},
	{0, run.Event{Scope: run.Component, Name: "shard/alpha", Status: run.Pending, Needs: []string{"cache-server", "root-shard"}}},
	{0, run.Event{Scope: run.Component, Name: "front-proxy/main", Status: run.Pending, Needs: []string{"root-shard", "shard/alpha"}}},
	{0, run.Event{Scope: run.Step, Name: "canary", Status: run.Pending}},
	{0, run.Event{Scope: run.Component, Name: "cache-server", Status: run.Running, Message: "0/1 ready: ContainerCreating"}},
	{time.Second, run.Event{Scope: run.Component, Name: "cache-server", Status: run.Running, Message: "0/1 ready: ContainerCreating"}},
	{time.Second, run.Event{Scope: run.Note, Message: "pulling ghcr.io/kcp-dev/kcp:v0.32.3, for the first time on this node\n"}},
	{16 * time.Second, run.Event{Scope: run.Component, Name: "cache-server", Status: run.Done, Message: "ready 1/1"}},
	{0, run.Event{Scope: run.Component, Name: "root-shard", Status: run.Running, Message: "0/2 ready"}},
	{41 * time.Second, run.Event{Scope: run.Component, Name: "root-shard", Status: run.Done, Message: "ready 2/2"}},
	{0, run.Event{Scope: run.Component, Name: "shard/alpha", Status: run.Running, Message: "0/2 ready"}},
	{72 * time.Second, run.Event{Scope: run.Component, Name: "shard/alpha", Status: run.Running,
		Message: "1/2 ready · demo-shard-alpha-7d9c\x1b[2J: ImagePullBackOff:\nghcr.io/kcp-dev/kcp:v0.32.9: not found"}},
	{528 * time.Second, run.Event{Scope: run.Component, Name: "shard/alpha", Status: run.Failed, Message: "1/2 ready after 10m: ImagePullBackOff"}},
	{0, run.Event{Scope: run.Component, Name: "front-proxy/main", Status: run.Skipped, Message: "shard/alpha failed"}},
}

const header = `kcp "demo" v0.32.3 → context kind-dev, namespace kcp`

// play plays the script, and calls frame after each event.
func play(p Progress, clock *testutil.Clock, frame func(i int)) {
	for i, s := range script {
		e := s.event
		e.Time = clock.Advance(s.after)
		p.Observe(e)
		frame(i)
	}
}

// still returns a live region that only the test draws.
func still(s *Streams, clock *testutil.Clock) *live {
	l := newLive(s.Err, ProgressOptions{Header: header, Now: clock.Now})
	close(l.stopped)
	return l
}

func TestLive(t *testing.T) {
	for name, tc := range map[string]struct {
		width int
		env   []string
	}{
		"80":       {80, []string{utf8Lang}},
		"40":       {40, []string{utf8Lang}},
		"80-ascii": {80, []string{"LANG=C"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, out, stderr := Fake("", tc.width, 24, tc.env...)
			screen := newVT(t, tc.width, 24)
			s.Err.Writer = io.MultiWriter(stderr, screen)
			clock := testutil.NewClock()
			var screens strings.Builder
			l := still(s, clock)
			play(l, clock, func(i int) {
				l.draw(false)
				fmt.Fprintf(&screens, "--- %d\n%s", i, screen.screen())
			})
			require.True(t, screen.hidden)
			l.Close()
			require.False(t, screen.hidden)
			fmt.Fprintf(&screens, "--- closed\n%s", screen.screen())

			testutil.Golden(t, "live-"+name+".screens.golden", []byte(screens.String()))
			testutil.Golden(t, "live-"+name+".bytes.golden", bytes.ReplaceAll(stderr.Bytes(), []byte("\x1b"), []byte("␛")))
			require.Empty(t, out.String(), "stdout is for what was asked for")
		})
	}
}

func TestLiveWritesOnlyWhatChanged(t *testing.T) {
	s, _, stderr := Fake("", 80, 24, utf8Lang)
	clock := testutil.NewClock()
	l := still(s, clock)
	l.Observe(run.Event{Time: clock.Now(), Scope: run.Step, Name: "checks", Status: run.Done})
	l.draw(false)
	stderr.Reset()
	clock.Advance(time.Minute)
	l.draw(false)
	require.Empty(t, stderr.String())
}

func TestLiveSurvivesResize(t *testing.T) {
	s, _, _ := Fake("", 80, 40, utf8Lang)
	screen, clock := newVT(t, 80, 40), testutil.NewClock()
	s.Err.Writer = screen
	s.Err.Size = func() (int, int) { return screen.width, screen.height }
	l := still(s, clock)
	play(l, clock, func(i int) {
		if i == 8 || i == 14 {
			screen.narrow(screen.width - 15)
		}
		l.draw(false)
	})
	l.Close()
	for _, name := range []string{"checks", "certificates", "cache-server", "root-shard", "front-proxy", "pulling", `kcp "demo"`} {
		require.Equal(t, 1, strings.Count(screen.String(), name), "%s in\n%s", name, screen)
	}
}

// crowded returns a live region with n shards, of which every tenth failed, a quarter is done, and the rest is running.
func crowded(s *Streams, n int) *live {
	clock := testutil.NewClock()
	l := still(s, clock)
	l.Observe(run.Event{Time: clock.Now(), Scope: run.Step, Name: "checks", Status: run.Done})
	for i := range n {
		e := run.Event{Time: clock.Now(), Scope: run.Component, Name: fmt.Sprintf("shard/s%03d", i), Status: run.Running}
		l.Observe(e)
		switch {
		case i%10 == 7:
			e.Status = run.Failed
		case i%4 == 0:
			e.Status = run.Done
		}
		l.Observe(e)
	}
	return l
}

func TestLiveFitsTheScreen(t *testing.T) {
	for _, n := range []int{12, 100} {
		for h := 1; h < 30; h++ {
			for _, w := range []int{1, 8, 20, 80} {
				s, _, _ := Fake("", w, h, utf8Lang)
				lines, _ := crowded(s, n).frame(w, h, false)
				require.LessOrEqual(t, len(lines), max(1, h-1), "%d shards, height %d", n, h)
				for _, line := range lines {
					require.LessOrEqual(t, width(line), max(w-1, 7), "%q", line)
				}
			}
		}
	}
}

func TestLiveFolds(t *testing.T) {
	for name, tc := range map[string]struct {
		shards, height int
		final          bool
	}{
		"few":         {12, 10, false},
		"few-final":   {12, 10, true},
		"many":        {100, 24, false},
		"many-final":  {100, 24, true},
		"many-narrow": {100, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := Fake("", 60, tc.height, utf8Lang, "NO_COLOR=1")
			lines, _ := crowded(s, tc.shards).frame(60, tc.height, tc.final)
			testutil.Golden(t, "fold-"+name+".golden", []byte(strings.Join(lines, "\n")+"\n"))
		})
	}
}

// A run with a hundred ready shards and their etcds ends with a line for each kind.
func TestLiveFoldsKinds(t *testing.T) {
	s, _, _ := Fake("", 60, 40, utf8Lang, "NO_COLOR=1")
	l := still(s, testutil.NewClock())
	observe := func(name string) {
		l.Observe(run.Event{Time: l.now(), Scope: run.Component, Name: name, Status: run.Done, Message: "ready 1/1"})
	}
	observe("root-shard")
	for i := range 100 {
		observe(fmt.Sprintf("etcd/s%d", i))
		observe(fmt.Sprintf("shard/s%d", i))
	}
	observe("front-proxy/main")
	lines, _ := l.frame(60, 40, true)
	require.Equal(t, []string{
		"    ✓ root-shard       ready 1/1", "    ✓ 100 etcds ready", "    ✓ 100 shards ready", "    ✓ front-proxy/main ready 1/1",
	}, lines)
}

func TestLiveFoldsSteps(t *testing.T) {
	s, _, _ := Fake("", 60, 10, utf8Lang, "NO_COLOR=1")
	l := crowded(s, 1)
	for i := range 100 {
		e := run.Event{Time: l.now(), Scope: run.Step, Name: fmt.Sprintf("leader of shard/s%03d", i), Status: run.Running}
		l.Observe(e)
		if e.Status = run.Done; i != 50 {
			l.Observe(e)
		}
	}
	lines, _ := l.frame(60, 10, false)
	require.Len(t, lines, 9)
	all := strings.Join(lines, "\n")
	for _, want := range []string{"✓ checks", "shard/s000", "✓ 96 more done", "leader of shard/s050", "leader of shard/s099"} {
		require.Contains(t, all, want)
	}
}

// chanWriter sends what is written to a channel.
type chanWriter chan string

func (w chanWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestCursorIsShownWhenInterrupted(t *testing.T) {
	s, _, _ := Fake("", 80, 24, utf8Lang)
	l := newLive(s.Err, ProgressOptions{Now: testutil.NewClock().Now})
	wrote := make(chanWriter)
	l.out.Writer = wrote
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(l.stopped)
		l.loop(ctx, nil)
	}()
	cancel()
	require.Equal(t, showCursor, <-wrote)
	close(l.stop)
	<-l.stopped
}

func TestNewProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		width   int
		env     string
		options Options
		want    Progress
	}{
		"terminal":     {width: 80, want: &live{}},
		"dumb":         {width: 80, env: "TERM=dumb", want: &plainLines{}},
		"no colour":    {width: 80, env: "NO_COLOR=1", want: &live{}},
		"colour never": {width: 80, options: Options{Color: ColorNever}, want: &live{}},
		"plain":        {width: 80, options: Options{Plain: true}, want: &plainLines{}},
		"pipe":         {want: &plainLines{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := Fake("", tc.width, 24, tc.env, utf8Lang)
			require.NoError(t, s.Configure(tc.options))
			p := NewProgress(t.Context(), s, ProgressOptions{Now: testutil.NewClock().Now})
			defer p.Close()
			require.IsType(t, tc.want, p)
		})
	}
}

func TestCloseEndsTheGoroutine(t *testing.T) {
	s, _, stderr := Fake("", 80, 24, utf8Lang)
	p := NewProgress(t.Context(), s, ProgressOptions{Header: header, Now: testutil.NewClock().Now})
	p.Observe(run.Event{Time: testutil.Start(), Scope: run.Step, Name: "checks", Status: run.Done, Message: "11 passed"})
	p.Close()
	<-p.(*live).stopped
	require.Contains(t, stderr.String(), "11 passed")
	require.True(t, strings.HasSuffix(stderr.String(), showCursor))
}

func TestPlain(t *testing.T) {
	s, out, stderr := Fake("", 0, 0, utf8Lang)
	clock := testutil.NewClock()
	p := NewProgress(t.Context(), s, ProgressOptions{Header: header, Now: clock.Now})
	play(p, clock, func(int) {})
	p.Close()
	testutil.Golden(t, "plain.golden", stderr.Bytes())
	require.Empty(t, out.String())
	require.Equal(t, 1, strings.Count(stderr.String(), "ContainerCreating"), "the same state is printed once")
}

func TestPlainSumsUpWhatIsUnchanged(t *testing.T) {
	s, _, stderr := Fake("", 0, 0, utf8Lang)
	clock := testutil.NewClock()
	p := NewProgress(t.Context(), s, ProgressOptions{Now: clock.Now})
	observe := func(name string, all ...run.Status) {
		for _, status := range all {
			p.Observe(run.Event{Time: clock.Now(), Scope: run.Component, Name: name, Status: status})
		}
	}
	observe("shard/a", run.Pending, run.Done)
	observe("shard/b", run.Pending, run.Running, run.Done)
	observe("shard/c", run.Pending, run.Done)
	p.Observe(run.Event{Time: clock.Now(), Scope: run.Step, Name: "canary", Status: run.Running})
	observe("shard/d", run.Pending, run.Done)
	p.Close()
	require.Equal(t, []string{
		"shard/b waiting", "shard/b ready", "canary running", "shard/a, shard/c, shard/d ready, unchanged",
	}, withoutTimes(stderr.String()))
}

func TestPlainGathersWhatIsSaidOfMany(t *testing.T) {
	s, _, stderr := Fake("", 0, 0, utf8Lang)
	clock := testutil.NewClock()
	p := NewProgress(t.Context(), s, ProgressOptions{Now: clock.Now})
	var remarks []string
	for i := range 6 {
		remarks = append(remarks, fmt.Sprintf("shard/s%d: labels change", i))
	}
	p.Observe(run.Event{Time: clock.Now(), Scope: run.Note, Message: strings.Join(remarks, "\n")})
	for i := range 6 {
		p.Observe(run.Event{Time: clock.Now(), Scope: run.Component, Name: fmt.Sprintf("shard/s%d", i), Status: run.Skipped, Message: fmt.Sprintf("etcd/s%d failed", i)})
	}
	p.Observe(run.Event{Time: clock.Now(), Scope: run.Component, Name: "kubeconfig/admin", Status: run.Skipped, Message: "front-proxy/main failed"})
	p.Close()
	require.Equal(t, []string{
		"shard/s0, shard/s1, shard/s2 and 3 more: labels change",
		"shard/s0, shard/s1, shard/s2 and 3 more skipped etcd/… failed", "kubeconfig/admin skipped front-proxy/main failed",
	}, withoutTimes(stderr.String()))
}

// withoutTimes returns the lines of a plain output without their times.
func withoutTimes(output string) []string {
	var out []string
	for line := range strings.Lines(output) {
		_, text, _ := strings.Cut(line, " ")
		out = append(out, strings.TrimSpace(text))
	}
	return out
}

func TestJSON(t *testing.T) {
	s, out, stderr := Fake("", 80, 24, utf8Lang)
	clock := testutil.NewClock()
	p := NewEventLines(s)
	play(p, clock, func(int) {})
	p.Close()
	testutil.Golden(t, "events.golden", out.Bytes())
	require.Empty(t, stderr.String())
	require.Equal(t, len(script), bytes.Count(out.Bytes(), []byte("\n")))
	var last run.Event
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &last))
	require.Equal(t, run.Skipped, last.Status)
}

func TestWaitsFor(t *testing.T) {
	for name, tc := range map[string]struct {
		needs []string
		want  string
	}{
		"nothing":        {nil, ""},
		"what is ready":  {[]string{"cache-server"}, ""},
		"one":            {[]string{"cache-server", "root-shard"}, "waits for root-shard"},
		"four":           {[]string{"a", "b", "c", "d"}, "waits for a, b, c, d"},
		"more than four": {[]string{"a", "b", "c", "d", "e"}, "waits for a, b, c and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard()
			b.update(run.Event{Scope: run.Component, Name: "cache-server", Status: run.Done})
			b.update(run.Event{Scope: run.Component, Name: "root-shard", Status: run.Running})
			r := b.update(run.Event{Scope: run.Component, Name: "front-proxy/main", Status: run.Pending, Needs: tc.needs})
			require.Equal(t, tc.want, b.message(r))
		})
	}
}

// The table of a note is aligned, and its lines are never joined.
func TestPlainTable(t *testing.T) {
	s, _, stderr := Fake("", 0, 0, utf8Lang)
	p := NewProgress(t.Context(), s, ProgressOptions{Now: testutil.NewClock().Now})
	p.Observe(run.Event{Scope: run.Note, Message: "two addresses", Table: [][]string{{"FROM", "TO"}, {"eu", "a"}, {"asia", "b"}}})
	p.Close()
	require.Equal(t, []string{"two addresses", "FROM   TO", "eu     a", "asia   b"}, withoutTimes(stderr.String()))
}

// Ctrl-C is not a failure: what was under way is interrupted, and the rest has not started.
func TestInterruptedIsNoFailure(t *testing.T) {
	events := []run.Event{
		{Scope: run.Step, Name: "plan", Status: run.Done, Message: "9 create"},
		{Scope: run.Component, Name: "cache-server", Status: run.Running, Message: "0/1 ready"},
		{Scope: run.Component, Name: "root-shard", Status: run.Pending, Needs: []string{"cache-server"}},
		{Scope: run.Component, Name: "cache-server", Status: run.Interrupted},
		{Scope: run.Component, Name: "root-shard", Status: run.NotStarted},
		{Scope: run.Step, Name: "canary", Status: run.Interrupted},
	}
	clock := &testutil.Clock{}
	streams, _, stderr := Fake("", 80, 24, utf8Lang)
	l := still(streams, clock)
	p := newPlain(streams.Err, ProgressOptions{Now: clock.Now})
	close(p.stopped)
	stderr.Reset()
	for _, e := range events {
		e.Time = clock.Now()
		l.Observe(e)
		p.Observe(e)
	}
	p.Close()
	lines, _ := l.frame(80, 24, true)
	for i, line := range lines {
		line, _, _ = strings.Cut(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(line, ""), "   0.0s")
		lines[i] = strings.TrimRight(line, " ")
	}
	require.Equal(t, []string{"  ✓ plan   9 create", "",
		"    - cache-server interrupted", "    · root-shard   not started", "",
		"  - canary interrupted"}, lines)
	plain := regexp.MustCompile(`(?m)^\S+ `).ReplaceAllString(stderr.String(), "")
	require.Equal(t, "plan done 9 create\ncache-server waiting 0/1 ready\ncache-server interrupted\nroot-shard not started\n"+
		"canary interrupted\n", plain)
}
