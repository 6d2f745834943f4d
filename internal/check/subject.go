package check

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Subject is what is checked.
type Subject struct {
	Topology *topology.Topology
	Runtime  run.Runtime
	// Objects are what is to be applied. Checks of what runs need none.
	Objects []render.Object
	Now     func() time.Time
	// Network is that of the machine that kcpctl runs on.
	Network Network

	// What Prepare has found.
	state  *pki.State
	states map[topology.ID]ready.State

	mu      sync.Mutex
	clients map[topology.ID]*kcp.Client
}

// Network looks up hosts and connects to addresses.
type Network interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	DialTLS(ctx context.Context, address string, c *tls.Config) (*tls.Conn, error)
}

// System is the network of this machine.
type System struct{ net.Resolver }

// LookupHost asks the system's resolver.
func (s *System) LookupHost(ctx context.Context, host string) ([]string, error) {
	return s.Resolver.LookupHost(ctx, host)
}

// DialTLS connects over TCP.
func (s *System) DialTLS(ctx context.Context, address string, c *tls.Config) (*tls.Conn, error) {
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// Clustered is a runtime on Kubernetes clusters.
type Clustered interface {
	Clusters() []Cluster
}

// Cluster is what checks ask of a Kubernetes cluster. What the user may not know is ErrUnknown; all other errors say what
// to do about them.
type Cluster interface {
	Server
	Capacity
}

// Server is the API of a cluster and what it lets the user do.
type Server interface {
	// Name is the cluster's name in the setup.
	Name() string
	// Hello says which Kubernetes it is, such as v1.36.3, and how far its clock is ahead of ours.
	Hello(ctx context.Context) (version string, ahead time.Duration, err error)
	// MayApply returns an error with all permissions that the user lacks to apply objects.
	MayApply(ctx context.Context, objects []render.Object) error
	// References returns an error with all objects that do not exist and that others refer to.
	References(ctx context.Context, objects []render.Object) error
}

// Capacity is what a cluster has for a setup.
type Capacity interface {
	// StorageClasses are the names of the storage classes; those that are the default come first.
	StorageClasses(ctx context.Context) (names []string, defaults int, err error)
	// Quotas are the quotas of the namespace.
	Quotas(ctx context.Context) ([]corev1.ResourceQuota, error)
	// Admit tells of each pod that the namespace would not take, why: because of pod security, limits, or a webhook.
	Admit(ctx context.Context, objects []render.Object) error
	// Architectures counts the nodes by architecture.
	Architectures(ctx context.Context) (map[string]int, error)
	// Occupied tells of node ports and host ports that the objects want and others have.
	Occupied(ctx context.Context, objects []render.Object) error
}

// Machine is a runtime on this machine.
type Machine interface {
	// StateFolder returns why files cannot be written.
	StateFolder(ctx context.Context) error
	// Programs returns which programs are missing or of another version.
	Programs(ctx context.Context, objects []render.Object) error
	// References returns which files the objects refer to that do not exist.
	References(ctx context.Context, objects []render.Object) error
	// FreePorts returns which ports somebody else has.
	FreePorts(ctx context.Context, objects []render.Object) error
	// HostAddress returns why kcp would find no address of the machine.
	HostAddress(ctx context.Context, objects []render.Object) error
}
