package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// users are the workspaces in which Deployments are created, and idle those with which requests at rest are
	// compared.
	users, idle = 10, 100
	// perUser is the number of Deployments of each, and interval the time between two of them: two in a second in all.
	// With ten in a second, the three shards need both processors of a small machine, and the time is that of their
	// queues.
	perUser  = 20
	interval = 5 * time.Second
	// leaves and twice are the numbers of leaves with which memory is measured.
	leaves, twice = 1000, 2000
	// restFor is how long requests at rest are counted.
	restFor = time.Minute
)

const workloadsSetup = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: bench-workloads}
spec:
  version: v0.32.3
  shards: [{name: alpha}, {name: beta}]
  kubeconfigs: [{name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}]
  workloads: {workspace: root:compute, workspaceType: workload, apis: [deployments.apps]}
`

// measureWorkloads registers two physical clusters without nodes, one that the controller syncs and one with its own
// syncer, and creates Deployments in ten workspaces of three shards. Each runs on both clusters.
func measureWorkloads(ctx context.Context, b *bench, runs int) error {
	var all workloadRuns
	for range runs {
		err := b.inField(ctx, func(f *field) error {
			f.image, f.replicas, f.spread = "registry.example.com/web:v1", 2, 2
			if err := f.startServers(ctx); err != nil {
				return err
			}
			return f.measure(ctx, b, &all)
		})
		if err != nil {
			return err
		}
	}
	all.addTo(&b.report)
	return nil
}

// workloadRuns has a sample of each run.
type workloadRuns struct {
	first, second          []float64 // registrations
	p50, p99               []float64 // of the time from create to existing in both clusters
	controller, syncer     []float64 // memory
	controllerMany         []float64
	syncerMany             []float64
	atRest, atRestWithMore []float64 // requests in a minute
}

func (w *workloadRuns) addTo(r *report) {
	r.add("workloads, first cluster registered", "s", w.first, limit(2))
	r.add("workloads, second cluster registered", "s", w.second, limit(2))
	r.add("workloads, create to existing, P50", "s", w.p50, limit(0.15), reference("Karmada 1.3 push, published", 0.706))
	r.add("workloads, create to existing, P99", "s", w.p99, limit(0.7), reference("Karmada 1.3 push, published", 1.298))
	r.add(fmt.Sprintf("workloads, controller, %d leaves", leaves), "MB", w.controller, limit(100*mebibyte))
	r.add(fmt.Sprintf("workloads, syncer, %d leaves", leaves/2), "MB", w.syncer, limit(40*mebibyte))
	r.add(fmt.Sprintf("workloads, controller, %d leaves", twice), "MB", w.controllerMany)
	r.add(fmt.Sprintf("workloads, syncer, %d leaves", twice/2), "MB", w.syncerMany)
	few := r.add(fmt.Sprintf("workloads, requests/min, %d workspaces", users), "n", w.atRest)
	r.add(fmt.Sprintf("workloads, requests/min, %d workspaces", idle), "n", w.atRestWithMore, reference(fmt.Sprintf("with %d", users), few))
}

// mebibyte is in megabytes, the unit of reports.
const mebibyte = 1.048576

// measure measures everything, in an order in which nothing disturbs what follows.
func (f *field) measure(ctx context.Context, b *bench, to *workloadRuns) error {
	first, err := f.register(ctx, "c1", "Push")
	if err != nil {
		return err
	}
	second, err := f.register(ctx, "c2", "None")
	if err != nil {
		return err
	}
	b.logf("workloads: registered in %.1f s and %.1f s", first.Seconds(), second.Seconds())
	if err := f.workspaces(ctx, 0, users); err != nil {
		return err
	}
	took, err := f.deploy(ctx, perUser, interval)
	if err != nil {
		return err
	}
	p50, p99 := percentile(took, 50), percentile(took, 99)
	b.logf("workloads: create to existing: P50 %.3f s, P99 %.3f s", p50, p99)
	controller, syncer, err := f.hold(ctx, leaves/2/users-perUser)
	if err != nil {
		return err
	}
	rest, err := f.requests(ctx)
	if err != nil {
		return err
	}
	if err := f.workspaces(ctx, users, idle); err != nil {
		return err
	}
	time.Sleep(restFor / 2)
	more, err := f.requests(ctx)
	if err != nil {
		return err
	}
	controllerMany, syncerMany, err := f.hold(ctx, (twice-leaves)/2/users)
	if err != nil {
		return err
	}
	b.logf("workloads: controller %.0f MB, syncer %.0f MB, with %d leaves %.0f MB, %.0f MB; at rest %.0f requests in a minute, with %d workspaces %.0f",
		controller, syncer, twice, controllerMany, syncerMany, rest, idle, more)
	to.first, to.second = append(to.first, first.Seconds()), append(to.second, second.Seconds())
	to.p50, to.p99 = append(to.p50, p50), append(to.p99, p99)
	to.controller, to.syncer = append(to.controller, controller), append(to.syncer, syncer)
	to.controllerMany, to.syncerMany = append(to.controllerMany, controllerMany), append(to.syncerMany, syncerMany)
	to.atRest, to.atRestWithMore = append(to.atRest, rest), append(to.atRestWithMore, more)
	return nil
}

// hold creates Deployments in each workspace, and returns the memory of the controller and of the syncer then.
func (f *field) hold(ctx context.Context, each int) (controller, syncer float64, _ error) {
	if _, err := f.deploy(ctx, each, interval/5); err != nil {
		return 0, 0, err
	}
	time.Sleep(restFor / 2) // garbage is collected, and memory goes back
	return f.memory()
}
