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
	aimHeap      = 1000.0 // megabytes
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
	fleetEnv     = "KCPCTL_BENCH_FLEET"
	fleetKCPRole = "kcp"
)

// fleet is a simulated kcp with clusters, and a scheduler.
type fleet struct {
	*bench
	fleetSize
	kcp, scheduler *fleetProcess
}

// fleetFigures are what is measured of a size. Times are in seconds, and memory in megabytes.
type fleetFigures struct {
	objects, leaves            int
	first, all                 float64 // of a fleet that is new
	again, writes              float64 // of a scheduler that starts again
	heap, peak, resident       float64
	rest, restWrites, node     float64
	p50, p99, flood50, flood99 float64
}

// measureFleet measures the scheduler with simulated clusters.
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
	if f.kcp, err = startFleetProcess(ctx, f.bench, fleetKCPRole, f.clusters); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, f.kcp.end()) }()
	f.logf("fleet, %d workspaces with %d objects each: create", f.workspaces, f.each)
	if err := f.kcp.ask(ctx, fmt.Sprintf("/control/fill?workspaces=%d&each=%d", f.workspaces, f.each), nil); err != nil {
		return out, err
	}
	if f.scheduler, err = startFleetProcess(ctx, f.bench, f.kcp.url, f.clusters); err != nil {
		return out, err
	}
	f.logf("fleet: the scheduler can be profiled at %s/debug/pprof/profile", f.scheduler.url)
	defer func() { err = errors.Join(err, f.scheduler.end()) }()
	for _, step := range []func(context.Context, *fleetFigures) error{f.begin, f.restart, f.rest, f.join, f.creates, f.floods} {
		if err := step(ctx, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// begin measures until a scheduler that has just been started has decided about all Deployments of a new fleet.
func (f *fleet) begin(ctx context.Context, out *fleetFigures) error {
	began := time.Now()
	var s fleetState
	err := f.until(ctx, fleetLimit, "not all is decided", func() (bool, error) {
		err := f.kcp.ask(ctx, "/control/state", &s)
		if s.Decided > 0 && out.first == 0 {
			out.first = time.Since(began).Seconds()
		}
		return s.Decided >= s.Deployments, err
	})
	out.all = time.Since(began).Seconds()
	if err != nil {
		return err
	}
	f.logf("fleet, %d workspaces: %d of %d Deployments are decided after %.1f s, the first after %.1f s",
		f.workspaces, s.Decided, s.Deployments, out.all, out.first)
	s, err = f.quiet(ctx)
	out.objects, out.leaves = s.Objects, s.Leaves
	f.logf("fleet, %d workspaces: %d objects with %d leaves after %.1f s", f.workspaces, s.Objects, s.Leaves, time.Since(began).Seconds())
	return err
}

// restart measures until a scheduler that starts again has decided about everything, and what it needs.
func (f *fleet) restart(ctx context.Context, out *fleetFigures) error {
	before, err := f.quiet(ctx)
	if err := errors.Join(err, f.scheduler.end()); err != nil {
		return err
	}
	began := time.Now()
	if f.scheduler, err = startFleetProcess(ctx, f.bench, f.kcp.url, f.clusters); err != nil {
		return err
	}
	if err := f.until(ctx, fleetLimit, "not all is decided again", func() (bool, error) {
		var s schedulerState
		err := f.scheduler.ask(ctx, "/state", &s)
		return s.Known && s.Waiting == 0, err
	}); err != nil {
		return err
	}
	out.again = time.Since(began).Seconds()
	after, err := f.quiet(ctx)
	if err != nil {
		return err
	}
	out.writes = float64(after.Writes - before.Writes)
	var s schedulerState
	if err := f.scheduler.ask(ctx, "/state?heap=yes", &s); err != nil {
		return err
	}
	resident, err := statusField(f.scheduler.Process.Pid, "VmHWM:")
	out.heap, out.peak, out.resident = megabytes(int64(s.Heap)), megabytes(int64(s.Peak)), megabytes(resident<<10)
	f.logf("fleet, %d workspaces: started again after %.1f s, heap %.0f MB", f.workspaces, out.again, out.heap)
	return err
}

// rest measures the scheduler when nothing changes but what clusters report about their pods.
func (f *fleet) rest(ctx context.Context, out *fleetFigures) error {
	var before, after schedulerState
	if err := f.scheduler.ask(ctx, "/state", &before); err != nil {
		return err
	}
	var first, last fleetState
	began, err := time.Now(), f.kcp.ask(ctx, "/control/state", &first)
	err = errors.Join(err, pause(ctx, fleetAtRest), f.scheduler.ask(ctx, "/state", &after), f.kcp.ask(ctx, "/control/state", &last))
	if err != nil {
		return err
	}
	out.rest, out.restWrites = (after.CPU-before.CPU)/time.Since(began).Seconds(), float64(last.Writes-first.Writes)
	return nil
}

// join measures what is written when a node joins a cluster.
func (f *fleet) join(ctx context.Context, out *fleetFigures) error {
	before, err := f.quiet(ctx)
	if err != nil {
		return err
	}
	if err := f.scheduler.ask(ctx, "/node", nil); err != nil {
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
	out.p50, out.p99, err = f.latency(ctx, "calm")
	return err
}

// floods measures it while one workspace floods.
func (f *fleet) floods(ctx context.Context, out *fleetFigures) (err error) {
	flood, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- f.kcp.ask(flood, fmt.Sprintf("/control/flood?rate=%d&seconds=%d", floodRate, 2*createFor), nil)
	}()
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
	query := fmt.Sprintf("/control/create?workspaces=%d&rate=%d&seconds=%d&crowd=%s", f.workspaces, createRate, createFor, crowd)
	if err := f.kcp.ask(ctx, query, nil); err != nil {
		return 0, 0, err
	}
	var seen []float64
	err := f.until(ctx, latencyLimit, "syncers do not see what was created", func() (bool, error) {
		var s fleetState
		err := f.kcp.ask(ctx, "/control/state", &s)
		seen = append(seen, s.Latencies[crowd]...)
		return len(seen) >= createRate*createFor, err
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

// quiet waits until nothing is written, but not for good: some schedulers never rest.
func (f *fleet) quiet(ctx context.Context) (last fleetState, _ error) {
	began, since := time.Now(), time.Now()
	for {
		var s fleetState
		var waiting schedulerState
		if err := errors.Join(f.kcp.ask(ctx, "/control/state", &s), f.scheduler.ask(ctx, "/state", &waiting)); err != nil {
			return s, err
		}
		if s.Writes != last.Writes || waiting.Waiting > 0 {
			since = time.Now()
		}
		last = s
		switch {
		case time.Since(since) >= quietFor:
			return s, nil
		case time.Since(began) >= quietLimit && waiting.Waiting == 0 || time.Since(began) >= fleetLimit:
			f.logf("fleet, %d workspaces: it does not rest, %d wait, these were written: %v", f.workspaces, waiting.Waiting, s.Kinds)
			return s, nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return s, err
		}
	}
}

// until calls a function until it returns true, or for a time: what takes longer has this time as its figure.
func (f *fleet) until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		ok, err := done()
		if err != nil || ok {
			return err
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
