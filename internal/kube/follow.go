package kube

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// followPause is how often it is looked for containers that have started, and how long after a failure a log is asked for
// again.
const followPause = 500 * time.Millisecond

// follower follows the logs of containers that come and go.
type follower struct {
	// sources are the containers that there are now.
	sources func() []logSource
	// read copies a log until it ends.
	read func(context.Context, logSource, url.Values) error
	// notify is told why a log broke off.
	notify func(string, ...any)
	out    *lines
}

// follow follows the logs of a component until ctx ends.
func (r *Runtime) follow(ctx context.Context, s *site, c *topology.Component, o run.LogOptions, out *lines) error {
	seen := s.watch(r.background, pods(), metav1.ListOptions{LabelSelector: r.selector()}, typed[corev1.Pod])
	if err := seen.wait(ctx); err != nil {
		return err
	}
	f := &follower{
		sources: func() []logSource {
			all := indexed[*corev1.Pod](seen, string(c.ID()))
			slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			return logSources(all)
		},
		read: func(ctx context.Context, src logSource, q url.Values) error {
			q.Set("follow", "true")
			return s.copyLog(ctx, src, q, out)
		},
		notify: r.notify, out: out,
	}
	return f.run(ctx, o)
}

// run follows every container once, from its start; those that run already from where the options say. It ends with ctx, or
// with the first error that trying again does not mend.
func (f *follower) run(ctx context.Context, o run.LogOptions) error {
	g, gctx := errgroup.WithContext(ctx)
	begun := map[logSource]bool{}
	for {
		var fresh []logSource
		for _, src := range f.sources() {
			if src.id != "" && !begun[src] {
				begun[src] = true
				fresh = append(fresh, src)
			}
		}
		f.out.from(fresh)
		for _, src := range fresh {
			q := query(src, o)
			g.Go(func() error { return f.one(gctx, src, q) })
		}
		o.Tail = 0
		select {
		case <-gctx.Done():
			err := g.Wait()
			if ctx.Err() != nil {
				return nil // it was interrupted, as it has to be
			}
			return err
		case <-time.After(followPause):
		}
	}
}

// one follows one container until it ends or is gone. A log that breaks off before, as with a connection, is taken up again.
func (f *follower) one(ctx context.Context, src logSource, q url.Values) error {
	reported := ""
	for {
		err := f.read(ctx, src, q)
		_, noSink := errors.AsType[sinkError](err)
		switch {
		case err == nil, ctx.Err() != nil:
			return nil
		case noSink, apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return err
		case !slices.Contains(f.sources(), src):
			return nil
		}
		if msg := err.Error(); msg != reported {
			reported = msg
			f.notify("%v; trying again", err)
		}
		if _, broken := errors.AsType[brokenError](err); broken {
			q.Set("tailLines", "0") // what was read is not printed again; a few lines in between are lost
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followPause):
		}
	}
}
