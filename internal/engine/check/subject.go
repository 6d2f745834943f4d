package check

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/agentstate"
)

// Subject is the setup that is checked.
type Subject struct {
	Topology *topology.Topology
	Runtime  Runtime
	// Objects are the ones that up would apply. Health checks do not need them.
	Objects []render.Object
	Now     func() time.Time
	// Moving are the components that are about to get another address or serving certificate.
	Moving map[topology.ID]bool
	// Only are the components that a run is limited to. None: it is not limited.
	Only []topology.ID
	// AllowUnreachable accepts that clusters are left out, because they cannot be reached.
	AllowUnreachable bool
	// Network is the network of this machine. Nil is the real one.
	Network Network
	// Pause is the time between two readings of shards. Zero is live.Pause.
	Pause time.Duration

	facts Facts

	// state and states are what Prepare has read.
	state  *pki.State
	states map[topology.ID]ready.State
	// reached is the result of the check of reachability.
	reached []Reachability

	mu      sync.Mutex
	clients map[topology.ID]*kcp.Client
}

func (s *Subject) network() Network {
	if s.Network == nil {
		return &System{}
	}
	return s.Network
}

// Runtime is what checks need of the runtime that runs a setup.
type Runtime interface {
	// Where describes the place in a few words: "context kind-dev, namespace kcp".
	Where() string
	// Store keeps the setup's PKI.
	Store() pki.Store
	// Record returns the record of the installation: an empty one before its first run.
	Record(ctx context.Context) (*record.Record, error)
	// Runs returns the run that holds the lock, and the last run if it has not finished.
	Runs(ctx context.Context) (current, unfinished *record.Run, err error)
	// Objects returns everything that was applied.
	Objects(ctx context.Context) ([]plan.Item, error)
	// State returns the state of a component.
	State(ctx context.Context, c *topology.Component) (ready.State, error)
	// Dial connects to the port on which a component serves.
	Dial(ctx context.Context, c *topology.Component) (net.Conn, error)
	agentstate.Reader
	LogReader
	// Facts returns what can be asked about the place. It asks nothing yet.
	Facts() Facts
}

// LogReader reads logs.
type LogReader interface {
	// Logs copies a component's logs.
	Logs(ctx context.Context, c *topology.Component, o LogOptions, w io.Writer) error
}

// ErrNoPrevious is the error for the previous log of what has never been restarted.
var ErrNoPrevious = errors.New("it has no previous log, because it was not restarted")

// LogOptions select logs.
type LogOptions struct {
	Follow   bool
	Previous bool
	// Tail is the number of last lines; nil is all.
	Tail *int64
	// Since and SinceTime omit older lines. Zero omits none.
	Since     time.Duration
	SinceTime time.Time
	// Timestamps prints the time of each line before it.
	Timestamps bool
}

// Facts is what checks can ask about the place where a setup runs: Kubernetes clusters, or this machine.
type Facts struct {
	Clusters []Cluster
	// Unreachable are the clusters that are left out, because they cannot be reached.
	Unreachable []plan.Unreachable
	// Physical are the clusters of spec.workloads.
	Physical []Physical
	// Services are the clusters whose APIs agents on this machine publish.
	Services []Physical
	// Machine is nil for a setup on clusters.
	Machine Machine
}

// Cluster answers questions about a Kubernetes cluster. An error that wraps ErrUnknown means that the user may not
// know; all others include what to do about them.
type Cluster interface {
	// Name is the cluster's name in the setup file.
	Name() string
	// Hello returns the version of Kubernetes, such as v1.36.3, and by how much the cluster's clock is ahead of this
	// machine's.
	Hello(ctx context.Context) (version string, ahead time.Duration, err error)
	// MayApply returns an error that lists all permissions that the user lacks to apply objects.
	MayApply(ctx context.Context, objects []render.Object) error
	// MayApplyClusterScoped returns an error that lists all permissions that the user lacks to apply objects without a
	// namespace.
	MayApplyClusterScoped(ctx context.Context, objects []render.Object) error
	// References returns an error that lists all objects that others refer to and that do not exist.
	References(ctx context.Context, objects []render.Object) error
	// Serves returns an error for each kind of the objects that the API server does not serve, and for each Ingress
	// class and Gateway that an object refers to and that does not exist.
	Serves(ctx context.Context, objects []render.Object) error
	// Versions returns the versions in which the API server serves a kind. It fails if it does not serve the kind.
	Versions(ctx context.Context, kind schema.GroupKind) ([]string, error)
	// Secret returns the data of a Secret in the namespace, and nil if it does not exist.
	Secret(ctx context.Context, name string) (map[string][]byte, error)
	// StorageClasses returns the names of the storage classes; the default ones come first.
	StorageClasses(ctx context.Context) (names []string, defaults int, err error)
	// Quotas returns the quotas of the namespace.
	Quotas(ctx context.Context) ([]corev1.ResourceQuota, error)
	// Running returns the names of the PersistentVolumeClaims of the namespace, and the labels of its pods that have
	// not ended.
	Running(ctx context.Context) (claims []string, pods []map[string]string, err error)
	// Admit returns an error for each pod that the namespace would reject: because of pod security, limits, or a
	// webhook.
	Admit(ctx context.Context, objects []render.Object) error
	// Architectures counts the nodes by architecture.
	Architectures(ctx context.Context) (map[string]int, error)
	// Occupied returns an error for each node port and host port that the objects need and that is in use.
	Occupied(ctx context.Context, objects []render.Object) error
	// Reach tries addresses from a short-lived pod in the namespace, and returns what happened at each.
	Reach(ctx context.Context, p Probe) ([]Answer, error)
}

// Physical is a cluster of spec.workloads, or one whose APIs agents on this machine publish.
type Physical struct {
	// Name is the cluster's name in the setup file.
	Name string
	PhysicalCluster
	// Err is why the cluster cannot be asked: the kubeconfig or the context does not exist.
	Err error
	// Registered means that a run has applied objects there.
	Registered bool
	// List lists objects with a selector for labels, as those who prepare the cluster see them. Nil: they cannot be
	// listed.
	List func(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error)
}

// PhysicalCluster answers questions about a cluster that is not one of the setup's own.
type PhysicalCluster interface {
	// Identity identifies the cluster, whatever its URL and the user are. It is empty if the user may not know.
	Identity(ctx context.Context) (string, error)
	// MayApplyClusterScoped and Versions are the same as in Cluster.
	MayApplyClusterScoped(ctx context.Context, objects []render.Object) error
	Versions(ctx context.Context, kind schema.GroupKind) ([]string, error)
}

// Machine answers questions about this machine, for a setup that runs on it.
type Machine interface {
	// StateFolder returns an error if the state directory cannot be written to.
	StateFolder(ctx context.Context) error
	// Programs returns an error for each program of another version than the objects need, and ErrUnknown if some must
	// be downloaded.
	Programs(ctx context.Context, objects []render.Object) error
	// References returns an error that lists all files that objects refer to and that do not exist.
	References(ctx context.Context, objects []render.Object) error
	// FreePorts returns an error for each port of the setup that another process has.
	FreePorts(ctx context.Context, objects []render.Object) error
	// HostAddress returns an error if kcp would find no address of the machine.
	HostAddress(ctx context.Context, objects []render.Object) error
}

// Network looks up hosts and connects to addresses.
type Network interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	DialTLS(ctx context.Context, address string, c *tls.Config) (*tls.Conn, error)
}

// System is the network of this machine.
type System struct{ net.Resolver }

// DialTLS connects over TCP.
func (*System) DialTLS(ctx context.Context, address string, c *tls.Config) (*tls.Conn, error) {
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}
