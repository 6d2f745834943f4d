package controller

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// errKubeconfig means that the kubeconfig of a cluster cannot be used.
var errKubeconfig = errors.New("the kubeconfig cannot be used")

// members are the clusters in push mode, which the controller reads and syncs itself.
type members struct {
	*workspace
	Options
	// changed is called when the state of a member has changed.
	changed func()
	// of are the members, and connections their kubeconfigs, by name.
	of          map[string]*member
	connections map[string]connection
	reports     *reports
}

// update starts and stops members. The syncer of a cluster works while the cluster is the one that it should be.
func (m *members) update(ctx context.Context, ids identities) {
	known := map[string]bool{}
	wanted := map[string]bool{}
	for _, cl := range ids.clusters {
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
	for _, cl := range ids.clusters {
		switch member := m.of[cl.Name]; {
		case member == nil:
		case ids.confirmed(cl):
			if !member.works() {
				close(member.confirmed)
			}
		case member.works():
			m.stop(cl.Name)
			if cfg, version, err := m.connect(cl); err == nil {
				m.of[cl.Name] = m.start(ctx, cl, cfg, version) // it looks at the cluster again
			}
		}
	}
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
		last.stop()
		delete(m.of, name)
	}
}

// record has the state of a physical cluster that the controller has read, or that its syncer has reported.
type record struct {
	negotiate.Cluster
	// uid identifies the physical cluster, and hash what it serves. Empty: that is not known.
	uid  types.UID
	hash string
	// again is when the cluster is read again although its APIs have not changed, because kcp refuses some. Zero: it
	// does not.
	again time.Time
}

func (m *members) record(cluster string) record {
	if push := m.of[cluster]; push != nil {
		known, _ := push.state()
		return known
	}
	if r := m.reports.of[cluster]; r != nil {
		return r.record
	}
	return record{Cluster: negotiate.Cluster{Name: cluster}}
}

// problem returns why a cluster could not be read yet. It is empty if it was, or if that is not known.
func (m *members) problem(cluster string) (reason, message string) {
	last := m.of[cluster]
	if last == nil {
		return "", ""
	}
	known, problem := last.state()
	switch {
	case known.hash != "" || problem == nil || m.unchecked(cluster) != "":
		return "", "" // what kcp does not answer says nothing about the cluster
	case apierrors.IsUnauthorized(problem):
		return api.ReasonUnauthorized, problem.Error()
	case apierrors.IsForbidden(problem):
		return api.ReasonForbidden, problem.Error()
	}
	return api.ReasonUnreachable, problem.Error()
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
