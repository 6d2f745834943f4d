package backup

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Managed reads managed etcds through their pods.
type Managed struct {
	Topology *topology.Topology
	Members  run.Members
	// Doubt is called if the etcd of a shard has no majority.
	Doubt func(shard topology.ID, why error)
}

// Snapshots returns a client of a member of the managed etcd of a shard.
func (m *Managed) Snapshots(ctx context.Context, c *topology.Component) (*etcd.Client, error) {
	switch {
	case c.Storage.Embedded:
		return nil, clierr.New(clierr.Failed,
			"take a snapshot of its volume while it does not run, or give it a managed etcd",
			"%s has an embedded etcd, which only its own process can read", c.ID())
	case c.Storage.Etcd == "":
		return nil, clierr.New(clierr.Failed, "take a snapshot with the tools of the etcd",
			"%s has an external etcd", c.ID())
	}
	of := m.Topology.Component(c.Storage.Etcd)
	if of == nil {
		return nil, fmt.Errorf("%s does not exist", c.Storage.Etcd)
	}
	client, doubt, err := m.Members.Client(ctx, of)
	if err == nil && doubt != nil {
		m.Doubt(c.ID(), doubt)
	}
	return client, err
}
