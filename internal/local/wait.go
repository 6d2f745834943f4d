package local

import (
	"context"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

const watchPeriod = 500 * time.Millisecond

// Wait watches the processes until ctx ends, starts those again that crash, and cuts logs that grow too long. It fails when
// a process does not come back, and when another run stops one.
func (r *Runtime) Wait(ctx context.Context) error {
	for {
		for _, c := range r.topology.Components {
			if !runs(c) {
				continue
			}
			l, err := r.observe(ctx, c)
			if err != nil {
				return err
			}
			if l.final {
				msg := append([]string{string(c.ID()) + " " + l.reason}, r.layout.lastLog(c.Object())...)
				return clierr.New(clierr.Failed, "run the same command again", "%s", strings.Join(msg, "\n    "))
			}
		}
		if err := r.layout.rotateLogs(maxLog); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
	}
}
