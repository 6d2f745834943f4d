// Package usage measures what the servers of a running installation use, and how full its shards are, from two readings
// of their metrics.
package usage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// latencyQuantile is the share of requests that are at most as slow as Component.P99.
const latencyQuantile = 0.99

// Component is what one process of a component uses. A value that is not known is nil.
type Component struct {
	Component topology.ID `json:"component"`
	// Replicas is the number of processes. The others are not measured.
	Replicas int32 `json:"replicas"`
	// RequestsPerSecond counts requests that have ended. A front-proxy counts watches too.
	RequestsPerSecond *float64 `json:"requestsPerSecond,omitempty"`
	// P99 is the latency in seconds that 99 percent of the requests did not exceed, without watches. It is not known
	// for front-proxies.
	P99 *float64 `json:"p99Seconds,omitempty"`
	// CPU is the used part of a core, and Memory the resident memory in bytes.
	CPU    *float64 `json:"cpuCores,omitempty"`
	Memory *int64   `json:"memoryBytes,omitempty"`
	// MemoryLimit is the limit of its container in bytes, or 0.
	MemoryLimit int64 `json:"memoryLimitBytes,omitempty"`
	// LogicalClusters is the number of logical clusters on a shard, without the shard's own.
	LogicalClusters *int `json:"logicalClusters,omitempty"`
	// Database is the size of the database of its etcd in bytes, and Quota the size at which etcd accepts no more
	// writes. Quota is 0 for an external etcd.
	Database *int64 `json:"etcdBytes,omitempty"`
	Quota    int64  `json:"etcdQuotaBytes,omitempty"`
	// Objects are the numbers of stored objects by resource: deployments.apps.
	Objects map[string]int `json:"-"`
	// Reason is why something is not known.
	Reason string `json:"reason,omitempty"`
}

// Reader measures the servers of an installation.
type Reader struct {
	Topology *topology.Topology
	// Connect returns an administrator's client of a server.
	Connect func(*topology.Component) (*kcp.Client, error)
	// Left are the clusters that cannot be reached.
	Left []plan.Unreachable
	// After returns a channel that is ready when the second reading is due.
	After func() <-chan time.Time
}

// Servers returns the components that are measured: servers of kcp.
func (r *Reader) Servers() []*topology.Component {
	var out []*topology.Component
	for _, c := range r.Topology.Components {
		if c.Kind.Serves() && c.Custom == nil {
			out = append(out, c)
		}
	}
	return out
}

// Read reads the metrics of all servers twice, and waits once in between. What cannot be read has a reason.
func (r *Reader) Read(ctx context.Context) ([]Component, error) {
	servers := r.Servers()
	all := make([]reading, len(servers))
	err := parallel.Each(ctx, parallel.Indices(servers), func(ctx context.Context, i int) error {
		all[i] = r.begin(ctx, servers[i])
		return nil
	})
	if !slices.ContainsFunc(all, func(r reading) bool { return r.Reason == "" }) {
		return components(all), err
	}
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-r.After():
		err = errors.Join(err, parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) error {
			all[i].end(ctx)
			return nil
		}))
	}
	return components(all), err
}

// components ends the connections, and returns what was read.
func components(all []reading) []Component {
	out := make([]Component, len(all))
	for i := range all {
		out[i] = all[i].Component
		if all[i].client != nil {
			all[i].client.Close()
		}
	}
	return out
}

// reading is a server whose metrics were read once, with the connection, so that both readings are of the same process.
type reading struct {
	Component

	client *kcp.Client
	before *metrics
	began  time.Time
}

// begin reads a server for the first time.
func (r *Reader) begin(ctx context.Context, c *topology.Component) reading {
	out := reading{Component: Component{
		Component: c.ID(), Replicas: c.Replicas, MemoryLimit: c.Resources.Limits.Memory().Value(),
		Quota: r.Topology.Quota(c),
	}}
	if l, lost := plan.UnreachableIn(r.Left, c.Cluster.Name); lost {
		out.Reason = l.Err.Error()
		return out
	}
	var err error
	if out.client, err = r.Connect(c); err == nil {
		out.before, err = scrape(ctx, out.client)
		out.began = time.Now()
	}
	if err == nil && c.IsShard() {
		err = out.count(ctx)
	}
	if err != nil {
		out.Reason = err.Error()
	}
	return out
}

// count counts the logical clusters of a shard.
func (r *reading) count(ctx context.Context) error {
	all, err := r.client.LogicalClusters(ctx)
	if err == nil {
		n := len(all)
		r.LogicalClusters = &n
	}
	return err
}

// end reads a server again, unless the first reading failed.
func (r *reading) end(ctx context.Context) {
	if r.Reason != "" {
		return
	}
	after, err := scrape(ctx, r.client)
	if err != nil {
		r.Reason = err.Error()
		return
	}
	r.set(r.before, after, time.Since(r.began))
}

// scrape reads the metrics of a server once.
func scrape(ctx context.Context, client *kcp.Client) (*metrics, error) {
	body, err := client.Open(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	m, err := readMetrics(body)
	return m, errors.Join(err, body.Close())
}

// set sets the values from two readings.
func (u *Component) set(before, after *metrics, between time.Duration) {
	u.Memory = integer(after.memory)
	u.Database = integer(after.database)
	u.Objects = map[string]int{}
	for resource, n := range after.objects {
		u.Objects[resource] = int(n)
	}
	if before.started != after.started || after.requests < before.requests {
		u.Reason = "it has restarted between two readings"
		return
	}
	perSecond := func(before, after float64) *float64 {
		v := (after - before) / between.Seconds()
		return &v
	}
	u.RequestsPerSecond = perSecond(before.requests, after.requests)
	u.CPU = perSecond(before.cpu, after.cpu)
	if seconds, ok := quantile(latencyQuantile, before.buckets, after.buckets); ok {
		u.P99 = &seconds
	}
}

// integer returns a value that is not 0.
func integer(v float64) *int64 {
	if v == 0 {
		return nil
	}
	n := int64(v)
	return &n
}
