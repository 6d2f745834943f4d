package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
)

// stuck is how long a pass of the controller, or a look of a syncer at its cluster, may take before the process has to
// be restarted.
const stuck = 5 * time.Minute

// idle returns why a server has to be restarted that has done nothing for a time, or nil.
func idle(server string, since time.Duration) error {
	if since <= stuck {
		return nil
	}
	return fmt.Errorf("the %s has done nothing for %s", server, since.Round(time.Second))
}

// seen is the state that the last pass has seen, for the probe.
type seen struct {
	at       time.Time
	clusters []*api.Cluster
	// latency has the histograms of the clusters in push mode.
	latency map[string]Latency
}

func (c *controller) see(clusters []*api.Cluster) {
	next := &seen{c.Now(), clusters, map[string]Latency{}}
	for name, m := range c.members.of {
		next.latency[name] = m.latency
	}
	c.seen.Store(next)
}

func (c *controller) state() probe.State {
	c.see(nil)
	return probe.State{
		Healthy: func() error { return idle("controller", c.Now().Sub(c.seen.Load().at)) },
		Ready: func() error {
			var problems []error
			for _, f := range c.set.Failures() {
				problems = append(problems, f)
			}
			if len(problems) == 0 && !c.set.Listed() {
				problems = append(problems, fmt.Errorf("the objects of workspace %s are not listed yet", c.path))
			}
			return errors.Join(problems...)
		},
		Metrics: c.metrics,
	}
}

// metrics returns the metrics of each cluster and of the scheduler.
func (c *controller) metrics() []probe.Metric {
	last := c.seen.Load()
	var ready, evicted, leaves, latencies []probe.Metric // metrics with the same name are together
	for _, cl := range last.clusters {
		labels := map[string]string{"cluster": cl.Name}
		ready = append(ready, probe.Metric{Name: "kcpctl_cluster_ready", Help: "Whether the cluster is ready.",
			Value: asNumber(fleet.IsReady(cl)), Labels: labels})
		evicted = append(evicted, probe.Metric{Name: "kcpctl_cluster_evicted",
			Help:  "Whether other clusters run the share of the cluster, too, because it is not ready.",
			Value: asNumber(fleet.IsEvicted(cl)), Labels: labels})
		if n := cl.Status.Leaves; n != nil {
			leaves = append(leaves, probe.Metric{Name: "kcpctl_leaves",
				Help: "Objects in workspaces that are scheduled to the cluster.", Value: float64(*n), Labels: labels})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(last.latency)) {
		latencies = append(latencies, last.latency[name].metrics(name)...)
	}
	waiting, failing := c.roots.Load()
	return append(slices.Concat(ready, evicted, leaves, latencies),
		probe.Metric{Name: "kcpctl_queue_depth", Help: "Objects that wait to be scheduled.", Value: float64(waiting)},
		probe.Metric{Name: "kcpctl_watches_failing", Help: "Resources of shards that cannot be listed or watched.",
			Value: float64(failing)})
}

func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// syncerState is the state of a syncer, for its heartbeats and its probe.
type syncerState struct {
	cluster string
	latency Latency
	// last is the last reported state, worked when it was reported, and beat the time of the last heartbeat. Nil: there
	// was none.
	last         atomic.Pointer[syncer.State]
	worked, beat atomic.Pointer[time.Time]
}

func (s *syncerState) get() syncer.State {
	if last := s.last.Load(); last != nil {
		return *last
	}
	return syncer.State{}
}

func (s *syncerState) state(now func() time.Time) probe.State {
	return probe.State{
		Healthy: func() error { return idle("syncer", now().Sub(*s.worked.Load())) },
		Ready: func() error {
			last, beat := s.last.Load(), s.beat.Load()
			switch {
			case last == nil:
				return errors.New("nothing is listed yet")
			case len(last.Failures) > 0:
				return errors.New(strings.Join(last.Failures, "\n"))
			case beat == nil || now().Sub(*beat) > heartbeat.Grace:
				return errors.New("no heartbeat could be sent to kcp")
			}
			return nil
		},
		Metrics: func() []probe.Metric {
			last := s.get()
			return append(s.latency.metrics(s.cluster), []probe.Metric{
				{Name: "kcpctl_queue_depth", Help: "Objects that wait to be synced.", Value: float64(last.Waiting)},
				{Name: "kcpctl_leaves", Help: "Objects in workspaces that are scheduled to the cluster.",
					Value: float64(last.Objects)},
				{Name: "kcpctl_orphans", Help: "Objects in the cluster that have no object in kcp.",
					Value: float64(last.Orphans)},
				{Name: "kcpctl_watches_failing",
					Help:  "Resources of kcp and of the cluster that cannot be listed or watched.",
					Value: float64(len(last.Failures))},
			}...)
		},
	}
}

// Latency has how long the changes of a cluster take, by direction.
type Latency map[syncer.Direction]*probe.Distribution

func newLatency() Latency {
	l := Latency{}
	for _, d := range syncer.Directions() {
		l[d] = &probe.Distribution{}
	}
	return l
}

func (l Latency) observe(d syncer.Direction, took time.Duration) { l[d].Observe(took) }

func (l Latency) metrics(cluster string) []probe.Metric {
	var out []probe.Metric
	for _, d := range syncer.Directions() {
		out = append(out, probe.Metric{
			Name: "kcpctl_sync_duration_seconds",
			Help: "Time from when a change is seen until it is written to the other side: the spec to the cluster " +
				"(down), the status to kcp (up).",
			Labels: map[string]string{"cluster": cluster, "direction": string(d)}, Distribution: l[d],
		})
	}
	return out
}
