package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
)

// stuck is how long a pass of the controller, or a piece of work of a syncer, may take before the process has to be
// restarted.
const stuck = 5 * time.Minute

// seen is the state that the last pass has seen, for the probe.
type seen struct {
	mu       sync.Mutex
	at       time.Time
	clusters []*api.Cluster
	latency  map[string]Latency
}

func (s *seen) set(at time.Time, clusters []*api.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
	s.clusters = clusters
}

func (s *seen) setLatency(of map[string]*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = map[string]Latency{}
	for name, m := range of {
		s.latency[name] = m.latency
	}
}

// latencies returns the histograms of the clusters in push mode.
func (s *seen) latencies() (all []probe.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.latency)) {
		all = append(all, s.latency[name].metrics(name)...)
	}
	return all
}

func (s *seen) get() (time.Time, []*api.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.clusters
}

// state returns the state of the controller for its probe.
func (c *controller) state() probe.State {
	c.seen.set(c.Now(), nil)
	return probe.State{
		Healthy: func() error {
			if at, _ := c.seen.get(); c.Now().Sub(at) > stuck {
				return fmt.Errorf("the controller has done nothing for %s", c.Now().Sub(at).Round(time.Second))
			}
			return nil
		},
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
	_, clusters := c.seen.get()
	var of [3][]probe.Metric // metrics with the same name are together
	for _, cl := range clusters {
		labels := map[string]string{"cluster": cl.Name}
		for i, m := range []probe.Metric{
			{Name: "kcpctl_cluster_ready", Help: "Whether the cluster is ready.", Value: asNumber(fleet.IsReady(cl))},
			{
				Name:  "kcpctl_cluster_evicted",
				Help:  "Whether other clusters run the share of the cluster, too, because it is not ready.",
				Value: asNumber(fleet.IsEvicted(cl)),
			},
		} {
			m.Labels = labels
			of[i] = append(of[i], m)
		}
		if n := cl.Status.Leaves; n != nil {
			of[2] = append(of[2], probe.Metric{
				Name: "kcpctl_leaves", Help: "Objects in workspaces that are scheduled to the cluster.",
				Value: float64(*n), Labels: labels,
			})
		}
	}
	waiting, failing := c.roots.Load()
	return append(slices.Concat(of[0], of[1], of[2], c.seen.latencies()),
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

	mu       sync.Mutex
	reported bool
	last     syncer.State
	beat     time.Time
}

func (s *syncerState) report(next syncer.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = true
	s.last = next
}

func (s *syncerState) sent(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat = at
}

func (s *syncerState) get() (last syncer.State, reported bool, beat time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.reported, s.beat
}

// state returns the state of a syncer for its probe.
func (s *syncerState) state(now func() time.Time, busy *probe.Busy) probe.State {
	return probe.State{
		Healthy: func() error { return busy.Stuck(now(), stuck) },
		Ready: func() error {
			last, reported, beat := s.get()
			switch {
			case !reported:
				return errors.New("nothing is listed yet")
			case len(last.Failures) > 0:
				return errors.New(strings.Join(last.Failures, "\n"))
			case now().Sub(beat) > heartbeat.Grace:
				return errors.New("no heartbeat could be sent to kcp")
			}
			return nil
		},
		Metrics: func() []probe.Metric {
			last, _, _ := s.get()
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
