package backup

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/etcds"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Managed reads managed etcds through their pods.
type Managed struct {
	Topology *topology.Topology
	Members  etcds.Members
}

// Snapshots returns a client of a member of the managed etcd of a shard.
func (m *Managed) Snapshots(ctx context.Context, c *topology.Component) (client *etcd.Client, doubt, err error) {
	switch {
	case c.Storage.Embedded:
		return nil, nil, clierr.New(clierr.Failed,
			"take a snapshot of its volume while it does not run, or give it a managed etcd",
			"%s has an embedded etcd, which only its own process can read", c.ID())
	case c.Storage.Etcd == "":
		return nil, nil, clierr.New(clierr.Failed, "take a snapshot with the tools of the etcd",
			"%s has an external etcd", c.ID())
	}
	of := m.Topology.Component(c.Storage.Etcd)
	if of == nil {
		return nil, nil, fmt.Errorf("%s does not exist", c.Storage.Etcd)
	}
	return m.Members.Client(ctx, of)
}
