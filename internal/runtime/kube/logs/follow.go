package logs

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// followInterval is how often the follower looks for containers that have started, and how long after a failure it
// requests a log again.
const followInterval = 500 * time.Millisecond

// follower follows the logs of containers that come and go.
type follower struct {
	// sources are the containers that exist now.
	sources func() []source
	// read copies a log until it ends.
	read func(context.Context, source, url.Values) error
	// notify is told why a log was interrupted.
	notify cluster.Notify
	out    *lineWriter
}

// Follow copies the logs of all containers of the pods that a function returns, also of those that start later, until
// ctx ends.
func Follow(
	ctx context.Context, cl *cluster.Client, pods func() []*corev1.Pod, o Options, w io.Writer, notify cluster.Notify,
) error {
	out := &lineWriter{w: w}
	f := &follower{
		sources: func() []source { return sources(pods()) },
		read: func(ctx context.Context, s source, q url.Values) error {
			q.Set("follow", "true")
			return copyLog(ctx, cl, s, q, out)
		},
		notify: notify, out: out,
	}
	return f.run(ctx, o)
}

// run follows every container once, from its start. The options apply to containers that run already. It ends with ctx,
// or with the first error that retrying does not repair.
func (f *follower) run(ctx context.Context, o Options) error {
	g, gctx := errgroup.WithContext(ctx)
	started := map[source]bool{}
	for {
		var fresh []source
		for _, s := range f.sources() {
			if s.id != "" && !started[s] {
				started[s] = true
				fresh = append(fresh, s)
			}
		}
		f.out.add(fresh)
		for _, s := range fresh {
			q := query(s, o)
			g.Go(func() error { return f.follow(gctx, s, q) })
		}
		o.Tail = nil
		if poll.Pause(gctx, followInterval) != nil {
			err := g.Wait()
			if ctx.Err() != nil {
				return nil // an interrupt is the usual end
			}
			return err
		}
	}
}

// follow follows one container until it ends or is gone. It resumes a log that is interrupted before.
func (f *follower) follow(ctx context.Context, s source, q url.Values) error {
	reported := ""
	for {
		err := f.read(ctx, s, q)
		_, cannotWrite := errors.AsType[writeError](err)
		switch {
		case err == nil, ctx.Err() != nil:
			return nil
		case cannotWrite, apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return err
		case !slices.Contains(f.sources(), s):
			return nil
		}
		if msg := err.Error(); msg != reported {
			reported = msg
			f.notify("%v; retrying", err)
		}
		if _, interrupted := errors.AsType[interruptedError](err); interrupted {
			q.Set("tailLines", "0") // do not print lines again; a few in between are lost
		}
		if poll.Pause(ctx, followInterval) != nil {
			return nil
		}
	}
}
