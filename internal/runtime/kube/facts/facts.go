// Package facts finds out what checks need to know about a cluster: whether it answers, what the user may do there, and
// what the cluster admits.
package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
)

// defaultStorageClass is the annotation of storage classes that are the default.
const defaultStorageClass = "storageclass.kubernetes.io/is-default-class"

// Cluster finds out facts about a cluster.
type Cluster struct {
	client *cluster.Client
	// setup is the name of the setup.
	setup string
	// probes means that runs create pods that try addresses.
	probes bool
	now    func() time.Time
	// serverInfo queries the API server once, however many checks need it.
	serverInfo func() serverInfo
}

var (
	_ check.Cluster         = (*Cluster)(nil)
	_ check.PhysicalCluster = (*Cluster)(nil)
)

// serverInfo is what an API server returns for /version, and by how much its clock is ahead.
type serverInfo struct {
	version string
	ahead   time.Duration
	err     error
}

// New returns the facts about a cluster of a setup. Requests that several calls share end with background.
func New(background context.Context, cl *cluster.Client, t *topology.Topology, now func() time.Time) *Cluster {
	c := &Cluster{client: cl, setup: t.Name, probes: t.Probes(), now: now}
	c.serverInfo = sync.OnceValue(func() serverInfo { return c.askServerInfo(background) })
	return c
}

// Name is the name of the cluster in the setup.
func (c *Cluster) Name() string { return c.client.Name }

// Identity returns the UID of the namespace kube-system, which identifies the cluster. It is empty if the user may not
// read it.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	if err := c.client.Connect(ctx); err != nil {
		return "", err
	}
	return string(c.client.UID), nil
}

// Hello returns the version of Kubernetes, and by how much the API server's clock is ahead of this machine's.
func (c *Cluster) Hello(ctx context.Context) (string, time.Duration, error) {
	if err := c.client.Connect(ctx); err != nil {
		return "", 0, err
	}
	i := c.serverInfo()
	return i.version, i.ahead, i.err
}

func (c *Cluster) askServerInfo(ctx context.Context) serverInfo {
	ctx, cancel := context.WithTimeoutCause(ctx, cluster.ConnectTimeout, cluster.ErrConnectTimeout)
	defer cancel()
	i, err := cluster.Retry(ctx, c.client, func() (serverInfo, error) { return c.requestServerInfo(ctx) })
	i.err = c.client.Explain(err, "ask for the version")
	return i
}

// requestServerInfo reads /version, which every user may read, and the clock from the Date header.
func (c *Cluster) requestServerInfo(ctx context.Context) (serverInfo, error) {
	sent := c.now()
	resp, err := c.client.Do(ctx, "/version", nil, nil)
	if err != nil {
		return serverInfo{}, err
	}
	defer resp.Body.Close()
	received := c.now()
	var v version.Info
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return serverInfo{}, fmt.Errorf("read /version: %w", err)
	}
	i := serverInfo{version: v.GitVersion}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds: half a second is the error to expect.
		i.ahead = date.Add(time.Second / 2).Sub(sent.Add(received.Sub(sent) / 2))
	}
	return i, nil
}

// MayApply returns an error with all permissions that the user lacks to apply objects.
func (c *Cluster) MayApply(ctx context.Context, objects []render.Object) error {
	return MayApply(ctx, c.client, objects, c.probes)
}

// References returns an error with all objects that other objects refer to and that do not exist.
func (c *Cluster) References(ctx context.Context, objects []render.Object) error {
	return References(ctx, c.client, objects)
}

// Secret returns the data of a Secret, and nil if it does not exist.
func (c *Cluster) Secret(ctx context.Context, name string) (map[string][]byte, error) {
	if err := c.client.Connect(ctx); err != nil {
		return nil, err
	}
	secret, err := c.client.Secret(ctx, name)
	if secret == nil || err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// StorageClasses returns the names of the storage classes, the default ones first, and the number of default ones.
func (c *Cluster) StorageClasses(ctx context.Context) (names []string, defaults int, err error) {
	all, err := list[metav1.PartialObjectMetadata](ctx, c.client, kind.StorageClasses, "")
	if err != nil {
		return nil, 0, err
	}
	var others []string
	for _, class := range all {
		if class.Annotations[defaultStorageClass] == "true" {
			names = append(names, class.Name)
			continue
		}
		others = append(others, class.Name)
	}
	slices.Sort(names)
	slices.Sort(others)
	return slices.Concat(names, others), len(names), nil
}

// Quotas returns the quotas of the namespace.
func (c *Cluster) Quotas(ctx context.Context) ([]corev1.ResourceQuota, error) {
	return list[corev1.ResourceQuota](ctx, c.client, kind.ResourceQuotas, c.client.Namespace)
}

// Running returns the names of the PersistentVolumeClaims of the namespace, and the labels of its pods that have not
// ended.
func (c *Cluster) Running(ctx context.Context) (claims []string, pods []map[string]string, err error) {
	volumes, err := list[metav1.PartialObjectMetadata](ctx, c.client, kind.PersistentVolumeClaim.GVR(),
		c.client.Namespace)
	if err != nil {
		return nil, nil, err
	}
	all, err := list[corev1.Pod](ctx, c.client, kind.Pods, c.client.Namespace)
	if err != nil {
		return nil, nil, err
	}
	for i := range volumes {
		claims = append(claims, volumes[i].Name)
	}
	for i := range all {
		if ended := all[i].Status.Phase; ended != corev1.PodSucceeded && ended != corev1.PodFailed {
			pods = append(pods, all[i].Labels)
		}
	}
	return claims, pods, nil
}

// Architectures returns the number of nodes by architecture.
func (c *Cluster) Architectures(ctx context.Context) (map[string]int, error) {
	nodes, err := list[corev1.Node](ctx, c.client, kind.Nodes, "")
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, n := range nodes {
		out[n.Status.NodeInfo.Architecture]++
	}
	maps.DeleteFunc(out, func(arch string, _ int) bool { return arch == "" }) // not reported yet
	return out, nil
}

// list returns the objects of a resource in a namespace, or in all namespaces if that is empty. It fails with
// check.ErrUnknown if the user may not list them.
func list[T any](
	ctx context.Context, cl *cluster.Client, r schema.GroupVersionResource, namespace string,
) ([]T, error) {
	if err := cl.Connect(ctx); err != nil {
		return nil, err
	}
	l, err := cl.Dynamic.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: the user may not list %s (%s)", check.ErrUnknown, r.Resource, cl.Where())
	case err != nil:
		return nil, cl.Explain(err, "list %s", r.Resource)
	}
	out := make([]T, len(l.Items))
	for i := range l.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", r.Resource, l.Items[i].GetName(), err)
		}
	}
	return out, nil
}
