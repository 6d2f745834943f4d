package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
)

// What kcp's own load tests consider the most for one shard, and for one resource of a cache server (kcp:
// test/load/Proposal.md, docs/content/concepts/sharding/shards.md).
const (
	mostWorkspaces = 3500
	mostCached     = 10000
)

// Full is the share from which on a shard counts as full.
const Full = topology.AlmostFull

const ofWorkspaces = "workspaces"

// Share is how much of something is used: 0.5 is half.
type Share struct {
	// Of is memory, etcd, workspaces or objects.
	Of   string  `json:"of"`
	Used float64 `json:"used"`
	// Text has the amounts: 1.2 GiB of 2 GiB.
	Text string `json:"text"`
}

// Capacity is how full a shard or a cache server is.
type Capacity struct {
	Component topology.ID `json:"component"`
	// Shares are sorted, the largest first. What is not known is missing.
	Shares []Share `json:"shares"`
	// Next is what to do if the component is full.
	Next string `json:"next,omitempty"`
	// Reason is why something is not known.
	Reason string `json:"reason,omitempty"`
}

// Used returns the largest share, or 0 if nothing is known.
func (c *Capacity) Used() float64 {
	if len(c.Shares) == 0 {
		return 0
	}
	return c.Shares[0].Used
}

// Room reports whether a component was measured and is not full.
func (c *Capacity) Room() bool { return c.Next == "" && c.Reason == "" }

// Capacities returns how full the shards and the cache server are.
func Capacities(all []Component) []Capacity {
	var out []Capacity
	for i := range all {
		switch all[i].Component.Kind() {
		case topology.RootShard, topology.Shard, topology.CacheServer:
			out = append(out, capacityOf(&all[i]))
		}
	}
	for i := range out {
		if out[i].Used() >= Full {
			out[i].Next = next(out, &out[i])
		}
	}
	return out
}

func capacityOf(u *Component) Capacity {
	out := Capacity{Component: u.Component, Shares: []Share{}, Reason: u.Reason}
	add := func(of string, used, most float64, text string) {
		out.Shares = append(out.Shares, Share{of, used / most, text})
	}
	if u.Memory != nil && u.MemoryLimit > 0 {
		add("memory", float64(*u.Memory), float64(u.MemoryLimit), bytesize.Of(*u.Memory, u.MemoryLimit))
	}
	if u.Database != nil && u.Quota > 0 {
		add("etcd", float64(*u.Database), float64(u.Quota), bytesize.Of(*u.Database, u.Quota))
	}
	if n := u.LogicalClusters; n != nil {
		add(ofWorkspaces, float64(*n), mostWorkspaces, fmt.Sprintf("%d of %d", *n, mostWorkspaces))
	}
	if resource, n := u.mostObjects(); n > 0 && u.Component.Kind() == topology.CacheServer {
		add("objects", float64(n), mostCached, fmt.Sprintf("%d of %d %s", n, mostCached, resource))
	}
	slices.SortStableFunc(out.Shares, func(a, b Share) int { return cmp.Compare(b.Used, a.Used) })
	return out
}

// mostObjects returns the resource with the most objects, and their number.
func (u *Component) mostObjects() (resource string, n int) {
	for r, count := range u.Objects {
		if count > n || count == n && r < resource {
			n = count
			resource = r
		}
	}
	return resource, n
}

// workspaces returns the part of the most workspaces that a shard has. It is 1 if that is unknown.
func (c *Capacity) workspaces() float64 {
	i := slices.IndexFunc(c.Shares, func(s Share) bool { return s.Of == ofWorkspaces })
	if i < 0 {
		return 1
	}
	return c.Shares[i].Used
}

// next returns what to do about a full component. If another shard has room and fewer workspaces, rebalance moves some
// there: it counts workspaces.
func next(all []Capacity, full *Capacity) string {
	of := full.Shares[0].Of
	roomy := slices.ContainsFunc(all, func(o Capacity) bool {
		return o.Component.Kind() == topology.Shard && len(o.Shares) > 0 && o.Used() < Full/2 &&
			o.workspaces() < full.workspaces()
	})
	more := "kcpctl add-shard NAME, then kcpctl rebalance"
	switch cache := full.Component.Kind() == topology.CacheServer; {
	case of == "objects":
		return "replicate fewer objects: kcp copies APIExports, their schemas and CachedResources to all shards"
	case cache:
		return "raise the " + limits[of] + " of the cache server in the setup file"
	case roomy && of == "etcd":
		return "kcpctl rebalance, then defragment the etcd: kcpctl explain KCP103"
	case roomy:
		return "kcpctl rebalance"
	case of == ofWorkspaces:
		return more
	}
	return strings.Join([]string{more, "or raise the " + limits[of] + " in the setup file"}, "; ")
}

// limits are the words for the fields of the setup file that limit something.
var limits = map[string]string{"memory": "memory limit", "etcd": "quota of the etcd"}
