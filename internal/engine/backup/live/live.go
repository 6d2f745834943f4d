// Package live compares the shards of a running installation with each other, as content compares snapshots.
package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup/content"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// Pause is long enough between two readings: kcp creates and deletes the two objects of a workspace one after the
// other, and shards are not read at the same moment.
const Pause = 5 * time.Second

// Reader reads the shards of an installation.
type Reader struct {
	Topology *topology.Topology
	// Connect returns a client of a shard, with system:masters.
	Connect func(*topology.Component) (*kcp.Client, error)
	// Pause is the time between two readings.
	Pause time.Duration
}

// Object is an object on a shard.
type Object struct {
	Shard  *topology.Component
	Client *kcp.Client
	*unstructured.Unstructured
}

// Reading is the result of reading all shards.
type Reading struct {
	Tears []content.Tear
	// Clusters are the LogicalClusters by ID, and Workspaces the Workspaces.
	Clusters   map[string]Object
	Workspaces map[content.Owner]Object
	// Begun are the moves of workspaces that have begun, and not ended.
	Begun []kcp.Begun
}

// Unfinished returns the moves that an interrupted run has left, if no run is in progress.
func (r *Reading) Unfinished() []kcp.Unfinished {
	on := map[string][]kcp.LogicalCluster{}
	for _, id := range slices.Sorted(maps.Keys(r.Clusters)) {
		o := r.Clusters[id]
		shard := o.Shard.ShardName()
		on[shard] = append(on[shard], kcp.LogicalClusterOf(o.Unstructured))
	}
	return kcp.NewUnfinished(r.Begun, on)
}

// Find reads all shards, and once more if something does not fit together: it returns the second reading, with what
// both have found. It fails if a shard does not answer: a workspace that is not found could be there. Objects of bound
// APIs are not compared.
func (r *Reader) Find(ctx context.Context) (*Reading, error) {
	first, err := r.read(ctx)
	if err != nil || len(first.Tears) == 0 {
		return first, err
	}
	if err := poll.Pause(ctx, r.Pause); err != nil {
		return nil, err
	}
	second, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	second.Tears = slices.DeleteFunc(second.Tears, func(t content.Tear) bool {
		return !slices.ContainsFunc(first.Tears, func(o content.Tear) bool { return Same(t, o) })
	})
	return second, nil
}

// Same reports whether two readings have found the same.
func Same(a, b content.Tear) bool {
	return a.Reason == b.Reason && a.Path == b.Path && a.Cluster == b.Cluster && slices.Equal(a.Shards, b.Shards)
}

// part is what one shard has.
type part struct {
	shard   *topology.Component
	client  *kcp.Client
	content *content.Shard
	objects []object
	begun   []kcp.Begun
}

type object struct {
	api kcpapi.API
	*unstructured.Unstructured
}

func (r *Reader) read(ctx context.Context) (*Reading, error) {
	parts, err := r.connect()
	if err != nil {
		return nil, err
	}
	root := parts[slices.IndexFunc(parts, func(p *part) bool { return p.shard == r.Topology.Root() })]
	identity, err := root.client.WorkspaceIdentity(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root.shard.ID(), err)
	}
	err = parallel.Each(ctx, parts, func(ctx context.Context, p *part) error {
		if err := p.read(ctx, identity); err != nil {
			return fmt.Errorf("%s: %w", p.shard.ID(), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	missing, err := root.registered(ctx, r.Topology)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root.shard.ID(), err)
	}
	return join(parts, missing), nil
}

func (r *Reader) connect() ([]*part, error) {
	var out []*part
	for _, c := range r.Topology.Shards() {
		client, err := r.Connect(c)
		if err != nil {
			return nil, err
		}
		out = append(out, &part{shard: c, client: client, content: content.NewShard(c.ShardName())})
	}
	return out, nil
}

func (p *part) read(ctx context.Context, identity string) error {
	return p.client.EachConnecting(ctx, identity, func(api kcpapi.API, o *unstructured.Unstructured) error {
		raw, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		p.objects = append(p.objects, object{api, o})
		return p.content.AddObject(api.GroupResource(), ownerOf(o), raw)
	})
}

// ownerOf is where an object is.
func ownerOf(o *unstructured.Unstructured) content.Owner {
	return content.Owner{Cluster: o.GetAnnotations()[kcpapi.AnnotationCluster], Name: o.GetName()}
}

// registered reads which shards the root shard knows, and which logical clusters are being moved. It returns the shards
// that the setup does not have: what is on them is not known.
func (p *part) registered(ctx context.Context, t *topology.Topology) (missing []string, _ error) {
	shards, err := p.client.Shards(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range shards {
		p.content.Shards[s.Name] = true
		if !slices.ContainsFunc(t.Shards(), func(c *topology.Component) bool { return c.ShardName() == s.Name }) {
			missing = append(missing, s.Name)
		}
	}
	bound, err := p.client.MigrationBound(ctx)
	if err != nil || !bound {
		return missing, err
	}
	p.begun, err = p.client.Migrating(ctx)
	for _, m := range p.begun {
		p.content.Moves[content.Owner{Cluster: kcp.RootWorkspace, Name: m.Cluster}] = content.Move{Cluster: m.Cluster}
	}
	return missing, err
}

func join(parts []*part, missing []string) *Reading {
	out := &Reading{Clusters: map[string]Object{}, Workspaces: map[content.Owner]Object{}}
	var all []*content.Shard
	for _, p := range parts {
		all = append(all, p.content)
		out.Begun = append(out.Begun, p.begun...)
		for _, o := range p.objects {
			found := Object{p.shard, p.client, o.Unstructured}
			if o.api == kcpapi.LogicalCluster {
				out.Clusters[ownerOf(o.Unstructured).Cluster] = found
			} else {
				out.Workspaces[ownerOf(o.Unstructured)] = found
			}
		}
	}
	out.Tears = content.Tears(all, missing)
	return out
}
