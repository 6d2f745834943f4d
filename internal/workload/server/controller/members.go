package controller

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
)

// errKubeconfig means that the kubeconfig of a cluster cannot be used.
var errKubeconfig = errors.New("the kubeconfig cannot be used")

// members are the clusters in push mode, which the controller syncs itself.
type members struct {
	*workspace
	Options
	// of are the members, and connections their kubeconfigs, by name.
	of          map[string]*member
	connections map[string]connection
	reports     *reports
}

// member is a cluster in push mode whose syncer was started.
type member struct {
	cancel context.CancelFunc
	done   chan struct{}
	// cluster is the UID of its Cluster, and secret the resourceVersion of the Secret with its kubeconfig.
	cluster types.UID
	secret  string
	// observer reads the cluster.
	observer *observer
	latency  Latency
}

// update starts and stops members.
func (m *members) update(ctx context.Context, clusters []*api.Cluster) {
	known := map[string]bool{}
	wanted := map[string]bool{}
	for _, cl := range clusters {
		known[cl.Name] = true
		if cl.Mode() != v1alpha1.SyncModePush {
			continue
		}
		cfg, version, err := m.connect(cl)
		if err != nil {
			continue // writeStatus reports it. A syncer that runs is stopped: its credentials were taken away.
		}
		wanted[cl.Name] = true
		if last := m.of[cl.Name]; last == nil || last.cluster != cl.UID || last.secret != version {
			m.stop(cl.Name)
			m.of[cl.Name] = m.start(ctx, cl, cfg, version)
		}
	}
	for _, name := range slices.Collect(maps.Keys(m.of)) {
		if !wanted[name] {
			m.stop(name)
		}
	}
	maps.DeleteFunc(m.connections, func(name string, _ connection) bool { return !known[name] })
}

func (m *members) start(ctx context.Context, cl *api.Cluster, cfg *rest.Config, secret string) *member {
	ctx, cancel := context.WithCancel(ctx)
	push := Member{
		KCP: m.KCP, Physical: cfg, Workspace: m.path, Setup: m.Setup, Cluster: cl.Name, UID: cl.UID,
		Mode: v1alpha1.SyncModePush, Version: m.Version, Holder: m.Holder, Now: m.Now, Latency: newLatency(),
		beats: m.every(heartbeat.Interval),
		after: func(d time.Duration) <-chan time.Time { return time.After(m.every(d)) },
	}
	next := &member{
		cancel: cancel, done: make(chan struct{}), cluster: cl.UID, secret: secret,
		observer: newObserver(push, m.client, m.metadata), latency: push.Latency,
	}
	go func() {
		defer close(next.done)
		if err := push.run(ctx, next.observer); err != nil {
			klog.FromContext(ctx).Error(err, "The syncer has ended", "cluster", cl.Name)
		}
	}()
	return next
}

// uid returns the UID of the physical cluster of a member, or nothing if it was not read yet.
func (m *members) uid(cluster string) types.UID {
	if last := m.of[cluster]; last != nil {
		return last.observer.identity.UID()
	}
	return ""
}

// isCurrent reports whether a physical cluster was reached with the kubeconfig that its Cluster refers to now, or is
// the one whose syncer has renewed the Lease. The watch may still show the kubeconfig or the Lease of a removed Cluster
// of the same name, which are of another cluster.
func (m *members) isCurrent(ctx context.Context, cl *api.Cluster, uid types.UID) (bool, error) {
	last := m.of[cl.Name]
	if last == nil {
		return m.reports.isCurrent(ctx, cl, uid)
	}
	ref := cl.Spec.KubeconfigSecretRef
	secret, err := m.client.Resource(secrets).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return secret.GetResourceVersion() == last.secret, nil
}

func (m *members) stopAll() {
	for _, name := range slices.Collect(maps.Keys(m.of)) {
		m.stop(name)
	}
}

func (m *members) stop(name string) {
	if last := m.of[name]; last != nil {
		last.cancel()
		<-last.done
		delete(m.of, name)
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
func (m *members) connect(cl *api.Cluster) (*rest.Config, string, error) {
	ref := cl.Spec.KubeconfigSecretRef
	if ref == nil {
		return nil, "", fmt.Errorf("%w: spec.kubeconfigSecretRef is not set", errKubeconfig)
	}
	secret := m.object(secrets, ref.Namespace, ref.Name)
	if secret == nil {
		return nil, "", fmt.Errorf("%w: there is no Secret %s/%s in workspace %s", errKubeconfig, ref.Namespace,
			ref.Name, m.path)
	}
	last := m.connections[cl.Name]
	if uid, version := secret.GetUID(), secret.GetResourceVersion(); last.secret != uid || last.version != version {
		last = connection{secret: uid, version: version}
		last.cfg, last.err = m.parse(secret)
		m.connections[cl.Name] = last
	}
	return last.cfg, last.version, last.err
}

func (m *members) parse(secret *unstructured.Unstructured) (*rest.Config, error) {
	text, _, _ := unstructured.NestedString(secret.Object, "data", api.KeyKubeconfig)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 {
		return nil, fmt.Errorf("%w: Secret %s/%s has no key %s", errKubeconfig, secret.GetNamespace(),
			secret.GetName(), api.KeyKubeconfig)
	}
	cfg, err := m.Connect(raw)
	if err != nil {
		// Not the error itself: it can quote what it does not understand.
		return nil, fmt.Errorf("%w: the content of Secret %s/%s is not a kubeconfig with a current context",
			errKubeconfig, secret.GetNamespace(), secret.GetName())
	}
	return cfg, nil
}
