package kcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// CordonAnnotation keeps new workspaces off a shard. Its value does not matter
// (kcp: pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
const CordonAnnotation = "experimental.core.kcp.io/unschedulable"

// adminPath is the path of the Admin workspace, which every shard serves to members of system:kcp:admin if shards own
// their Shard objects. It has the Shard objects of all shards, and accepts CordonAnnotation as the only change
// (kcp#4365, kcp#4371).
const adminPath = "/services/admin"

// acknowledgedWithin is how long Cordon waits for the shard.
const acknowledgedWithin = time.Minute

// LabelsAnnotation of a Shard lists the keys of the labels that kcpctl has set, separated by commas.
const LabelsAnnotation = "kcpctl.dev/labels"

// nameLabel is the label of a Shard with its name. kcp sets it (kcp: pkg/server/server.go).
const nameLabel = "name"

// Shard is a registered shard.
type Shard struct {
	Name                string `json:"name"`
	BaseURL             string `json:"baseURL"`
	ExternalURL         string `json:"externalURL"`
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL"`
	// Cordoned means that no new workspaces are scheduled there.
	Cordoned bool `json:"cordoned,omitempty"`
	// Labels are all labels, and OwnLabels the keys of those that kcpctl has set.
	Labels    map[string]string `json:"-"`
	OwnLabels []string          `json:"-"`
}

// Shards returns the registered shards, sorted by name. The client's server is the root shard or a front-proxy.
func (c *Client) Shards(ctx context.Context) ([]Shard, error) {
	list, err := c.list(ctx, RootWorkspace, shardResource, "shards")
	if err != nil {
		return nil, err
	}
	var out []Shard
	for i := range list {
		out = append(out, shardOf(&list[i]))
	}
	slices.SortFunc(out, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// ErrNotRegistered is the error of a shard without a Shard object.
var ErrNotRegistered = errors.New("not yet registered with the root shard")

// Shard returns a registered shard, or ErrNotRegistered. Unlike Shards it reads one object, so that it is cheap to read
// each of many shards. The client's server is the root shard or a front-proxy.
func (c *Client) Shard(ctx context.Context, name string) (Shard, error) {
	o, err := c.workspace(RootWorkspace).Resource(shardResource).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err): // the latter is a server without the API
		return Shard{}, ErrNotRegistered
	case err != nil:
		return Shard{}, fmt.Errorf("read shard %s: %w", name, err)
	}
	return shardOf(o), nil
}

// identifiedExports are the APIExports whose identities other servers request while they start.
var identifiedExports = []string{"shards.core.kcp.io", tenancyExport, "topology.kcp.io"}

// Identified returns nil if the root shard serves what other shards and front-proxies request while they start: the
// identities of kcp's own APIs (kcp: pkg/server/bootstrap/identity.go). It does so well before it is ready.
func (c *Client) Identified(ctx context.Context) error {
	root := c.workspace(RootWorkspace)
	for _, export := range identifiedExports {
		if _, err := exportIdentity(ctx, root, export); err != nil {
			return err
		}
	}
	return nil
}

// RegisterShard creates the Shard object of a shard that was deleted, if it does not exist. The client's server is the
// root shard.
func (c *Client) RegisterShard(ctx context.Context, s Shard) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": shardResource.GroupVersion().String(), "kind": "Shard",
		"metadata": map[string]any{"name": s.Name},
		"spec": map[string]any{"baseURL": s.BaseURL, "externalURL": s.ExternalURL,
			"virtualWorkspaceURL": s.VirtualWorkspaceURL},
	}}
	labels := map[string]string{}
	maps.Copy(labels, s.Labels)
	labels[nameLabel] = s.Name
	o.SetLabels(labels)
	notes := map[string]string{}
	if len(s.OwnLabels) > 0 {
		notes[LabelsAnnotation] = strings.Join(s.OwnLabels, ",")
	}
	if s.Cordoned {
		notes[CordonAnnotation] = "true"
	}
	o.SetAnnotations(notes)
	_, err := c.workspace(RootWorkspace).Resource(shardResource).Create(ctx, o,
		metav1.CreateOptions{FieldManager: object.FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register shard %s: %w", s.Name, err)
	}
	return nil
}

func shardOf(o *unstructured.Unstructured) Shard {
	field := func(name string) string {
		s, _, _ := unstructured.NestedString(o.Object, "spec", name)
		return s
	}
	_, cordoned := o.GetAnnotations()[CordonAnnotation]
	s := Shard{
		Name: o.GetName(), BaseURL: field("baseURL"), ExternalURL: field("externalURL"),
		VirtualWorkspaceURL: field("virtualWorkspaceURL"), Cordoned: cordoned, Labels: o.GetLabels(),
	}
	if own := o.GetAnnotations()[LabelsAnnotation]; own != "" {
		s.OwnLabels = strings.Split(own, ",")
	}
	return s
}

// Cordon keeps new workspaces off a shard, or allows them again if on is false. Existing workspaces are kept. The
// client's server is the root shard. If shards own their Shard objects, it waits until the shard has acknowledged it:
// the change reaches the shard through the cache server, whenever the shard is connected.
func (c *Client) Cordon(ctx context.Context, shard string, on bool) error {
	var value any // null removes the annotation
	if on {
		value = "true"
	}
	err := c.patchShard(ctx, shard, map[string]any{"annotations": map[string]any{CordonAnnotation: value}})
	if err == nil && c.ownShards {
		err = c.acknowledged(ctx, shard, on)
	}
	if err != nil {
		return fmt.Errorf("cordon shard %s: %w", shard, err)
	}
	return nil
}

// acknowledged waits until a shard shows by its condition whether it is cordoned (kcp#4361).
func (c *Client) acknowledged(ctx context.Context, shard string, cordoned bool) error {
	late := errors.New("the shard has not acknowledged it")
	ctx, cancel := context.WithTimeoutCause(ctx, acknowledgedWithin, late)
	defer cancel()
	shards := c.at(adminPath).Resource(shardResource)
	return poll.Until(ctx, time.Second, nil, func() (string, error) {
		o, err := shards.Get(ctx, shard, metav1.GetOptions{})
		if err != nil {
			return poll.Reason(err), nil
		}
		want := condition{kind: "Schedulable", status: "True"}
		if cordoned {
			want.status = "False"
		}
		if slices.ContainsFunc(conditionsOf(o), func(c condition) bool {
			return c.kind == want.kind && c.status == want.status
		}) {
			return "", nil
		}
		return fmt.Sprintf("its condition %s is not %s", want.kind, want.status), nil
	})
}

// SetLabels sets the wanted labels of a shard, by which workspaces can select it, and removes those that kcpctl has set
// and that are no longer wanted. It keeps all other labels, and writes nothing if nothing differs. The shard itself
// does not change its labels after its registration (kcp: pkg/server/server.go). The client's server is the root shard.
// If shards own their Shard objects, it writes nothing, and fails until the shard has the labels of its flag.
func (c *Client) SetLabels(ctx context.Context, s Shard, want map[string]string) error {
	if c.ownShards {
		return awaitedLabels(s, want)
	}
	changes := map[string]any{}
	for key, value := range want {
		if have, ok := s.Labels[key]; !ok || have != value {
			changes[key] = value
		}
	}
	for _, key := range s.OwnLabels {
		if _, ok := want[key]; !ok {
			changes[key] = nil // removes it
		}
	}
	own := slices.Sorted(maps.Keys(want))
	if len(changes) == 0 && slices.Equal(own, s.OwnLabels) {
		return nil
	}
	var list any
	if len(own) > 0 {
		list = strings.Join(own, ",")
	}
	metadata := map[string]any{"labels": changes, "annotations": map[string]any{LabelsAnnotation: list}}
	if err := c.patchShard(ctx, s.Name, metadata); err != nil {
		return fmt.Errorf("set labels of shard %s: %w", s.Name, err)
	}
	return nil
}

// awaitedLabels fails if a shard does not have a wanted label.
func awaitedLabels(s Shard, want map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if have, ok := s.Labels[key]; !ok || have != want[key] {
			return fmt.Errorf("shard %s has not registered with the label %s=%s yet", s.Name, key, want[key])
		}
	}
	return nil
}

func (c *Client) patchShard(ctx context.Context, shard string, metadata map[string]any) error {
	at := c.workspace(RootWorkspace)
	if c.ownShards {
		at = c.at(adminPath)
	}
	_, err := mergepatch.Send(ctx, at.Resource(shardResource), object.FieldManager, shard, "",
		map[string]any{"metadata": metadata})
	return err
}

// DeleteShard deletes the Shard object, if it exists. Front-proxies then forget the logical clusters of the shard, so
// it must be empty. The client's server is the root shard.
func (c *Client) DeleteShard(ctx context.Context, shard string) error {
	err := c.workspace(RootWorkspace).Resource(shardResource).Delete(ctx, shard, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete shard %s: %w", shard, err)
	}
	return nil
}
