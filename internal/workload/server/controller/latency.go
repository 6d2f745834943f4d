package controller

import (
	"time"

	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
)

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
