package kcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

var (
	apiBindingResource = kcpapi.APIBinding.GVR()
	migrationResource  = kcpapi.LogicalClusterMigration.GVR()
)

// The migration API has to be bound in a workspace before it can be used there.
const (
	migrationExport  = "migration.kcp.io"
	migrationBinding = "kcpctl-migration"
)

// CanMigrate reports whether the client's server, which is a shard, has the feature gate LogicalClusterMigration on.
// Only then does it have a handler for dumps of logical clusters, which refuses all clients but other shards (kcp:
// pkg/server/migrationdump). Nothing is dumped.
func (c *Client) CanMigrate(ctx context.Context) (bool, error) {
	resp, err := c.request(ctx, http.MethodPost, "/clusters/"+localAdminWorkspace+dumpPath, nil, nil)
	if err != nil {
		return false, fmt.Errorf("query the feature gate LogicalClusterMigration: %w", err)
	}
	return resp.StatusCode == http.StatusForbidden, resp.Body.Close()
}

// BindMigration binds the migration API in the root workspace, and waits until it is served. The client's server is the
// root shard.
func (c *Client) BindMigration(ctx context.Context, report func(reason string)) error {
	root, binding := c.workspace(RootWorkspace), kcpapi.APIBinding.New(migrationBinding)
	binding.Object["spec"] = map[string]any{"reference": map[string]any{"export": map[string]any{"path": RootWorkspace,
		"name": migrationExport}}}
	_, err := root.Resource(apiBindingResource).Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind %s: %w", migrationExport, err)
	}
	err = poll.UntilWorks(ctx, pollInterval, report, func() error {
		b, err := root.Resource(apiBindingResource).Get(ctx, migrationBinding, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(b.Object, "status", "phase"); phase != "Bound" {
			return errors.New("not yet bound")
		}
		_, err = root.Resource(migrationResource).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("bind %s: %w", migrationExport, err)
	}
	return nil
}

// MigrationBound reports whether BindMigration was called and UnbindMigration was not: a run that moves logical
// clusters has not ended. The client's server is the root shard.
func (c *Client) MigrationBound(ctx context.Context) (bool, error) {
	_, err := c.workspace(RootWorkspace).Resource(apiBindingResource).Get(ctx, migrationBinding, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read APIBinding %s: %w", migrationBinding, err)
	}
	return true, nil
}

// UnbindMigration undoes BindMigration, unless there are migrations left.
func (c *Client) UnbindMigration(ctx context.Context) error {
	root := c.workspace(RootWorkspace)
	left, err := root.Resource(migrationResource).List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		return err
	}
	err = root.Resource(apiBindingResource).Delete(ctx, migrationBinding, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("unbind %s: %w", migrationExport, err)
	}
	return nil
}

// migrationPrefix begins the names of the LogicalClusterMigrations that kcpctl creates.
const migrationPrefix = "kcpctl-"

// migrationOf returns the name of the LogicalClusterMigration of a logical cluster.
func migrationOf(cluster string) string {
	return migrationPrefix + strings.ReplaceAll(cluster, ":", "-")
}

// MigrationPath is how a logical cluster names the LogicalClusterMigration of kcpctl that moves it.
func MigrationPath(cluster string) string { return RootWorkspace + ":" + migrationOf(cluster) }

// Begun is a move that kcpctl has begun.
type Begun struct {
	// Cluster is the name of the logical cluster, and Shard the shard that it moves to. Shard is empty if an earlier
	// release of kcpctl has begun the move, and it is held.
	Cluster, Shard string
	// Held means that kcp does not copy yet, so that the shard can still be another one.
	Held bool
}

// Migrating returns the moves that kcpctl has begun. The client's server is the root shard. There are none if the API
// is not served, because BindMigration was not called.
func (c *Client) Migrating(ctx context.Context) ([]Begun, error) {
	list, err := c.list(ctx, RootWorkspace, migrationResource, "migrations")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Begun
	for i := range list {
		o := &list[i]
		cluster, _, _ := unstructured.NestedString(o.Object, "spec", "logicalCluster")
		shard, _, _ := unstructured.NestedString(o.Object, "spec", "destinationShard")
		held := shard == holding
		if held {
			shard = o.GetAnnotations()[destinationAnnotation]
		}
		if o.GetName() == migrationOf(cluster) {
			out = append(out, Begun{cluster, shard, held})
		}
	}
	return out, nil
}

// Command is the command that completes the move, and all others that have begun.
func (b Begun) Command() string {
	return fmt.Sprintf("kcpctl move %s --to %s", b.Cluster, cmp.Or(b.Shard, "SHARD"))
}

// Unfinished is a move that an earlier run has begun, if no run is in progress.
type Unfinished struct {
	Begun
	// Path is the path of the workspace, or else the name of its logical cluster.
	Path string
}

// NewUnfinished returns the moves that have begun, and the logical clusters that are closed without one. On are the
// logical clusters of shards by the names of the shards: not all have to be known.
func NewUnfinished(begun []Begun, on map[string][]LogicalCluster) []Unfinished {
	var out []Unfinished
	for _, b := range begun {
		out = append(out, Unfinished{b, b.Cluster})
	}
	for _, shard := range slices.Sorted(maps.Keys(on)) {
		for _, l := range on[shard] {
			at := slices.IndexFunc(out, func(u Unfinished) bool { return u.Cluster == l.Name })
			switch {
			case at >= 0:
				out[at].Path = l.Path
			case l.Moving:
				out = append(out, Unfinished{Begun{Cluster: l.Name, Shard: shard}, l.Path})
			}
		}
	}
	return out
}
