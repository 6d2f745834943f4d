package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// The sizes of a fleet: the objects are those of users. The first is a tenth of the second.
var fleetSizes = []fleetSize{{100, 100, 10}, {1000, 100, 100}} // or the one of KCPCTL_BENCH_FLEET_SIZE="100 100 10"

// fleetSize is a number of workspaces, of objects in each of them, and of clusters.
type fleetSize struct{ workspaces, each, clusters int }

// What the product must reach at the larger size.
const (
	aimStart     = 60.0   // seconds until everything is decided
	aimRest      = 0.05   // of a core
	aimMemory    = 1000.0 // megabytes
	aimNode      = 10.0   // requests when a node joins
	aimExist     = 1.0    // seconds from create until a syncer sees it, P99
	aimFlood     = 1.2    // times the P99 without a tenant who floods
	fleetAtRest  = 30 * time.Second
	fleetLimit   = 10 * time.Minute // a workspace is bound to a cluster on demand, 50 bindings in a second
	latencyLimit = 30 * time.Second
	createRate   = 20
	createFor    = 25
	floodRate    = 2000
	quietFor     = 3 * time.Second
	quietLimit   = 20 * time.Second
	// settleFor is how long a cluster is new: when that has passed, all its workloads are decided again.
	settleFor = 40 * time.Second
	fleetEnv  = "KCPCTL_BENCH_FLEET"
)

// fleet is a simulated kcp with clusters, and a controller.
type fleet struct {
	*bench
	fleetSize
	dir        string
	kcp        *fleetKCP
	controller *fleetController
}

// fleetFigures are what is measured of a size. Times are in seconds, and memory in megabytes.
type fleetFigures struct {
	objects, leaves            int
	first, all                 float64 // of a fleet that is new
	again, writes              float64 // of a controller that starts again
	memory, peak               float64 // resident
	rest, restWrites, restOwn  float64
	node                       float64
	p50, p99, flood50, flood99 float64
}

// measureFleet measures the controller with simulated clusters.
func measureFleet(ctx context.Context, b *bench, _ int) error {
	var all []fleetFigures
	sizes := fleetSizes
	if text := os.Getenv(fleetEnv + "_SIZE"); text != "" {
		var one fleetSize
		if _, err := fmt.Sscan(text, &one.workspaces, &one.each, &one.clusters); err != nil {
			return fmt.Errorf("%s_SIZE must be three numbers, of workspaces, objects in each, and clusters: %w", fleetEnv, err)
		}
		sizes = []fleetSize{one}
	}
	for _, size := range sizes {
		f := &fleet{bench: b, fleetSize: size}
		measured, err := f.measure(ctx)
		if err != nil {
			return fmt.Errorf("%d workspaces: %w", size.workspaces, err)
		}
		b.report.addFleet(size, measured, all)
		all = append(all, measured)
	}
	return nil
}

// measure measures a size.
func (f *fleet) measure(ctx context.Context) (out fleetFigures, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if f.kcp, err = newFleetKCP(ctx, f.clusters); err != nil {
		return out, err
	}
	f.logf("fleet, %d workspaces with %d objects each: create", f.workspaces, f.each)
	if err := f.kcp.fill(f.workspaces, f.each); err != nil {
		return out, err
	}
	if f.dir, err = os.MkdirTemp("", "kcpctl-bench"); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, f.controller.stop(), os.RemoveAll(f.dir)) }()
	for _, step := range []func(context.Context, *fleetFigures) error{f.begin, f.restart, f.rest, f.join, f.creates, f.floods} {
		if err := step(ctx, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// start starts the controller.
func (f *fleet) start(ctx context.Context) (err error) {
	f.controller, err = startFleetController(ctx, f.bench, f.kcp.server.URL, f.dir)
	return err
}

// begin measures until a controller that has just been started has decided about all Deployments of a new fleet.
func (f *fleet) begin(ctx context.Context, out *fleetFigures) error {
	began := time.Now()
	if err := f.start(ctx); err != nil {
		return err
	}
	var s fleetState
	err := f.until(ctx, fleetLimit, "not all is decided", func() bool {
		s = f.kcp.tell()
		if s.Decided > 0 && out.first == 0 {
			out.first = time.Since(began).Seconds()
		}
		return s.Decided >= s.Deployments
	})
	out.all = time.Since(began).Seconds()
	if err != nil {
		return err
	}
	f.logf("fleet, %d workspaces: %d of %d Deployments are decided after %.1f s, the first after %.1f s",
		f.workspaces, s.Decided, s.Deployments, out.all, out.first)
	if err := pause(ctx, time.Until(began.Add(settleFor))); err != nil {
		return err
	}
	s, err = f.quiet(ctx)
	out.objects, out.leaves = s.Objects, s.Leaves
	f.logf("fleet, %d workspaces: %d objects with %d leaves after %.1f s", f.workspaces, s.Objects, s.Leaves, time.Since(began).Seconds())
	return err
}

// restart measures until a controller that starts again has decided about everything, and what it writes.
func (f *fleet) restart(ctx context.Context, out *fleetFigures) error {
	before, err := f.quiet(ctx)
	if err := errors.Join(err, f.controller.stop()); err != nil {
		return err
	}
	began := time.Now()
	last := began
	if err := f.start(ctx); err != nil {
		return err
	}
	err = f.until(ctx, fleetLimit, "not all is decided again", func() bool {
		if n, ok := f.controller.waiting(ctx); !ok || n > 0 || !f.kcp.tell().Known {
			last = time.Now()
		}
		return time.Since(last) >= time.Second
	})
	if err != nil {
		return err
	}
	out.again = last.Sub(began).Seconds()
	after, err := f.quiet(ctx)
	out.writes = float64(after.Writes - before.Writes)
	f.logf("fleet, %d workspaces: started again after %.1f s", f.workspaces, out.again)
	return err
}

// rest measures the controller when nothing changes but what clusters report about their pods.
func (f *fleet) rest(ctx context.Context, out *fleetFigures) error {
	began, first := time.Now(), f.kcp.tell()
	before, err := f.controller.cpu()
	err = errors.Join(err, pause(ctx, fleetAtRest))
	after, err2 := f.controller.cpu()
	last := f.kcp.tell()
	out.rest = (after - before) / time.Since(began).Seconds()
	out.restWrites, out.restOwn = float64(last.Writes-first.Writes), float64(last.Own-first.Own)
	f.logf("fleet, %d workspaces: %.3f of a core at rest", f.workspaces, out.rest)
	return errors.Join(err, err2)
}

// join measures what is written to workspaces when a node joins a cluster.
func (f *fleet) join(ctx context.Context, out *fleetFigures) error {
	before, err := f.quiet(ctx)
	if err != nil {
		return err
	}
	if err := f.kcp.join(); err != nil {
		return err
	}
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	after, err := f.quiet(ctx)
	out.node = float64(after.Writes - before.Writes)
	return err
}

// creates measures the time from create until a syncer sees the leaf.
func (f *fleet) creates(ctx context.Context, out *fleetFigures) (err error) {
	if out.p50, out.p99, err = f.latency(ctx, "calm"); err != nil {
		return err
	}
	resident, err := statusField(f.controller.Process.Pid, "VmRSS:")
	peak, err2 := statusField(f.controller.Process.Pid, "VmHWM:")
	out.memory, out.peak = megabytes(resident<<10), megabytes(peak<<10)
	f.logf("fleet, %d workspaces: %.0f MB of memory, %.0f MB at most", f.workspaces, out.memory, out.peak)
	return errors.Join(err, err2)
}

// floods measures it while one workspace floods.
func (f *fleet) floods(ctx context.Context, out *fleetFigures) (err error) {
	flood, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.kcp.flood(flood, floodRate, 2*createFor) }()
	defer func() {
		stop()
		if ended := <-ended; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}()
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	out.flood50, out.flood99, err = f.latency(ctx, "flood")
	return err
}

func (f *fleet) latency(ctx context.Context, crowd string) (p50, p99 float64, _ error) {
	if err := f.kcp.create(ctx, f.workspaces, createRate, createFor, crowd); err != nil {
		return 0, 0, err
	}
	var seen []float64
	err := f.until(ctx, latencyLimit, "syncers do not see what was created", func() bool {
		seen = append(seen, f.kcp.tell().Latencies[crowd]...)
		return len(seen) >= createRate*createFor
	})
	if err != nil {
		return 0, 0, err
	}
	f.logf("fleet, %d workspaces, %s: %d of %d are seen", f.workspaces, crowd, len(seen), createRate*createFor)
	slices.Sort(seen)
	for len(seen) < createRate*createFor {
		seen = append(seen, latencyLimit.Seconds())
	}
	p50, p99 = seen[len(seen)/2], seen[len(seen)*99/100]
	f.logf("fleet, %d workspaces, %s: P50 %.3f s, P99 %.3f s", f.workspaces, crowd, p50, p99)
	return p50, p99, nil
}

// quiet waits until nothing is written, but not for good: some controllers never rest.
func (f *fleet) quiet(ctx context.Context) (last fleetState, _ error) {
	began, since := time.Now(), time.Now()
	for {
		s := f.kcp.tell()
		waiting, ok := f.controller.waiting(ctx)
		if !ok {
			return s, errors.New("the controller has ended, or serves no metrics")
		}
		if s.Writes != last.Writes || waiting > 0 {
			since = time.Now()
		}
		last = s
		switch {
		case time.Since(since) >= quietFor:
			return s, nil
		case time.Since(began) >= quietLimit && waiting == 0 || time.Since(began) >= fleetLimit:
			f.logf("fleet, %d workspaces: it does not rest, %.0f wait, these were written: %v", f.workspaces, waiting, s.Kinds)
			return s, nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return s, err
		}
	}
}

// until calls a function until it returns true, or for a time: what takes longer has this time as its figure.
func (f *fleet) until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if done() {
			return nil
		}
		if err := pause(ctx, min(time.Duration(f.workspaces)*time.Millisecond/2, time.Second)); err != nil {
			return err
		}
	}
	f.logf("fleet, %d workspaces: %s after %s", f.workspaces, what, limit)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
