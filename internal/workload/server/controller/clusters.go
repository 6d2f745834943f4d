package controller

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// errKubeconfig means that the kubeconfig of a cluster cannot be used.
var errKubeconfig = errors.New("the kubeconfig cannot be used")

// updateMembers starts and stops the clusters in push mode.
func (c *controller) updateMembers(ctx context.Context, clusters []*api.Cluster) {
	wanted := map[string]bool{}
	for _, cl := range clusters {
		if cl.Mode() != api.SyncModePush {
			continue
		}
		cfg, version, err := c.connect(cl)
		if err != nil {
			continue // writeStatus reports it. A syncer that runs is stopped: its credentials were taken away.
		}
		wanted[cl.Name] = true
		if m := c.members[cl.Name]; m != nil && m.secret == version {
			continue
		}
		c.stopMember(cl.Name)
		c.members[cl.Name] = c.startMember(ctx, cl, cfg, version)
	}
	for _, name := range slices.Collect(maps.Keys(c.members)) {
		if !wanted[name] {
			c.stopMember(name)
		}
	}
	maps.DeleteFunc(c.connections, func(name string, _ connection) bool { return c.converted[name] == nil })
	for _, cl := range clusters {
		c.confirm(ctx, cl, clusters)
	}
}

// connection has the server and the credentials of a kubeconfig.
type connection struct {
	// secret is the UID of the Secret, and version its resourceVersion.
	secret  types.UID
	version string
	cfg     *rest.Config
	err     error
}

// connect returns how to reach a cluster, and the version of its kubeconfig. A kubeconfig is read once.
func (c *controller) connect(cl *api.Cluster) (*rest.Config, string, error) {
	ref := cl.Spec.KubeconfigSecretRef
	if ref == nil {
		return nil, "", fmt.Errorf("%w: spec.kubeconfigSecretRef is not set", errKubeconfig)
	}
	secret := c.object(secrets, ref.Namespace, ref.Name)
	if secret == nil {
		return nil, "", fmt.Errorf("%w: there is no Secret %s/%s in workspace %s", errKubeconfig, ref.Namespace,
			ref.Name, c.Workspace)
	}
	last := c.connections[cl.Name]
	if uid, version := secret.GetUID(), secret.GetResourceVersion(); last.secret != uid || last.version != version {
		last = connection{secret: uid, version: version}
		last.cfg, last.err = c.parse(secret)
		c.connections[cl.Name] = last
	}
	return last.cfg, last.version, last.err
}

// parse reads the kubeconfig in a Secret.
func (c *controller) parse(secret *unstructured.Unstructured) (*rest.Config, error) {
	text, _, _ := unstructured.NestedString(secret.Object, "data", api.KeyKubeconfig)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 {
		return nil, fmt.Errorf("%w: Secret %s/%s has no key %s", errKubeconfig, secret.GetNamespace(),
			secret.GetName(), api.KeyKubeconfig)
	}
	cfg, err := c.Connect(raw)
	if err != nil {
		// Not the error itself: it can quote what it does not understand.
		return nil, fmt.Errorf("%w: the content of Secret %s/%s is not a kubeconfig with a current context",
			errKubeconfig, secret.GetNamespace(), secret.GetName())
	}
	return cfg, nil
}

// object returns an object of the compute workspace that is watched, or nil.
func (c *controller) object(r schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	if o, ok := c.set.Get(r, watch.Key{Cluster: c.cluster, Namespace: namespace, Name: name}); ok {
		return o.Unstructured
	}
	return nil
}

// lease returns the Lease of a cluster, or nil.
func (c *controller) lease(cluster string) *unstructured.Unstructured {
	return c.object(heartbeat.Leases, api.NamespaceLeases, api.LeaseCluster(cluster))
}

// unusable returns why a cluster cannot be used, which its heartbeats do not tell.
func (c *controller) unusable(cl *api.Cluster, clusters []*api.Cluster) (reason, message string) {
	if cl.Mode() == api.SyncModePush {
		if _, _, err := c.connect(cl); err != nil {
			return api.ReasonKubeconfigInvalid, err.Error()
		}
	}
	if same := c.sameAs(cl, clusters); same != "" {
		return api.ReasonDuplicateCluster, fmt.Sprintf("Cluster %s is the same physical cluster: delete one of them",
			same)
	}
	if message := c.replaced(cl, clusters); message != "" {
		return api.ReasonClusterReplaced, message
	}
	m := c.members[cl.Name]
	if m == nil {
		return "", ""
	}
	result, _, problem := m.state()
	switch {
	case result != nil || problem == nil:
		return "", ""
	case apierrors.IsUnauthorized(problem):
		return api.ReasonUnauthorized, problem.Error()
	case apierrors.IsForbidden(problem):
		return api.ReasonForbidden, problem.Error()
	}
	return api.ReasonUnreachable, problem.Error()
}
