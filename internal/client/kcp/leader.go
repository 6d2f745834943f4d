package kcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

// The Lease by which the replicas of a shard elect the leader that runs the controllers (kcp:
// pkg/server/options/controllers.go, and pkg/server/server.go for the workspace, which each shard has for itself).
const (
	localAdminWorkspace = "system:admin"
	leaseNamespace      = "kube-system"
	leaseName           = "kcp-controllers"
)

// Leader is the replica that runs a shard's controllers.
type Leader struct {
	// Elected means that the replicas elect a leader.
	Elected bool
	// Host is the name of its host, which is the name of its pod. It is empty while no replica is the leader.
	Host string
	// Version changes each time when the leader renews its lease, every two seconds.
	Version string
}

// RenewDeadline is how long a leader leads without renewing its lease, rounded up (kcp: pkg/server/server.go).
const RenewDeadline = 6 * time.Second

// leases returns a client for the Lease. The client's server is the shard.
func (c *Client) leases() dynamic.ResourceInterface {
	return c.workspace(localAdminWorkspace).Resource(kind.Leases).Namespace(leaseNamespace)
}

// Leader returns the replica that runs the shard's controllers. The client's server is the shard.
func (c *Client) Leader(ctx context.Context) (Leader, error) {
	lease, err := c.leases().Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Leader{}, nil
	}
	if err != nil {
		return Leader{}, fmt.Errorf("read the leader's lease: %w", err)
	}
	identity, _, err := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	host, _, _ := strings.Cut(identity, "_") // host_UUID
	return Leader{true, host, lease.GetResourceVersion()}, err
}

// Release releases the lease of a leader that has ended, so that the next leader need not wait until it expires. It
// fails if another replica has taken the lease.
func (c *Client) Release(ctx context.Context, l Leader) error {
	_, err := mergepatch.Send(ctx, c.leases(), object.FieldManager, leaseName, "", map[string]any{
		"metadata": map[string]any{"resourceVersion": l.Version}, "spec": map[string]any{"holderIdentity": ""},
	})
	if err != nil {
		return fmt.Errorf("release the lease of %s: %w", l.Host, err)
	}
	return nil
}
