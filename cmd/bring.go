package cmd

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// voice tells of what happens: while something runs as its events, else as notes.
type voice struct {
	env *Env
	mu  sync.Mutex
	// progress is nil while nothing runs.
	progress ui.Progress
}

// say passes a remark on.
func (v *voice) say(msg string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.progress == nil {
		v.env.note(msg)
		return
	}
	v.progress.Observe(run.Event{Time: v.env.Now(), Scope: run.Note, Message: msg})
}

func (v *voice) observe(e run.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.progress != nil {
		v.progress.Observe(e)
	}
}

// begin shows what is observed from now on under a header, or as JSON, until end is called.
func (v *voice) begin(ctx context.Context, header, output string) (end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress = ui.NewProgress(ctx, v.env.Streams, ui.ProgressOptions{Header: header, JSON: output == outputJSON, Now: v.env.Now})
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.progress.Close()
		v.progress = nil
	}
}

// bringOptions are those of commands that bring something up.
type bringOptions struct {
	timeout    time.Duration
	skipCanary bool
	output     string
}

// addBringFlags adds the flags of a command that waits until something is so.
func (b *bringOptions) addBringFlags(c *cobra.Command, timeout time.Duration, until string) {
	c.Flags().DurationVar(&b.timeout, "timeout", timeout, "how long to wait until "+until+", 0 for ever")
	allow(c.Flags(), anywhere(), "timeout")
	c.Flags().BoolVar(&b.skipCanary, "skip-canary", false, "do not create a workspace on each shard to prove that it serves")
	addEvents(c, &b.output)
}

func checkTimeout(d time.Duration) error {
	if d < 0 {
		return clierr.New(clierr.BadInput, "use a duration such as 10m, or 0 to wait for ever", "negative timeout %s", d)
	}
	return nil
}

// bring brings the setup up, and shows it under a header. Failures of the checks with the given IDs only warn.
func (s *session) bring(ctx context.Context, rt run.Runtime, header string, b bringOptions, o run.UpOptions, ignored ...string) (*run.Result, error) {
	var remembered []byte
	if !s.keepHistory {
		var err error
		if remembered, err = setup.Marshal(s.File.Setup); err != nil {
			return nil, err
		}
	}
	o.SkipCanary, o.Timeout = b.skipCanary, b.timeout
	end := s.begin(ctx, header, b.output)
	up := &run.Up{
		Topology: s.Topology, Runtime: rt, Setup: remembered, Observe: s.observe, Now: s.Now, Options: o,
		Preflight: s.preflight(rt, ignored...),
	}
	res, err := up.Run(ctx)
	end()
	if b.output != outputJSON && res != nil && res.Plan != nil && len(res.Plan.Conflicts) > 0 {
		ui.PrintConflicts(s.Streams.Err, res.Plan.Conflicts)
	}
	return res, err
}
