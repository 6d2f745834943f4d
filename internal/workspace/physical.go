package workspace

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// store reads and writes objects: in the workspaces of a kcp, or on a physical cluster.
type store interface {
	Object(ctx context.Context, p kcp.Place) (*unstructured.Unstructured, error)
	ApplyObject(ctx context.Context, p kcp.Place, o *unstructured.Unstructured, dryRun, force bool) (*unstructured.Unstructured, error)
	DeleteObject(ctx context.Context, p kcp.Place, seen *unstructured.Unstructured) error
}

// Physical is a client for a cluster of spec.workloads.
type Physical interface {
	store
	// Issue returns a kubeconfig with a new token of a ServiceAccount.
	Issue(ctx context.Context, namespace, account string, validity time.Duration) ([]byte, error)
	// Fits reports whether a kubeconfig of Issue can still be used.
	Fits(ctx context.Context, kubeconfig []byte, namespace, account string) bool
}

// Open returns a client for a cluster of spec.workloads. It sends no request.
type Open func(v1alpha1.WorkloadCluster) (Physical, error)

// hintGone is the next step if objects on a physical cluster cannot be deleted.
const hintGone = "make the cluster reachable, or remove it from spec.workloads.clusters: then its ServiceAccount stays there"

// errNoCluster means that the setup does not have a physical cluster any longer.
var errNoCluster = errors.New("the setup does not have this cluster")

// physical returns the client for a physical cluster.
func (s *objects) physical(name string) (Physical, error) {
	if c := s.topology.Component(topology.IDOf(topology.Physical, name)); c != nil {
		return s.open(c.Physical.WorkloadCluster)
	}
	if c, ok := s.removed[name]; ok {
		return s.open(c)
	}
	return nil, fmt.Errorf("cluster %s: %w", name, errNoCluster)
}

// in returns the store of a place: a workspace, or a physical cluster.
func (s *objects) in(place string) (store, error) {
	if name, ok := topology.IsPhysical(place); ok {
		return s.physical(name)
	}
	return s.client, nil
}

// object returns a live object, or nil.
func (s *objects) object(ctx context.Context, ref plan.Ref) (*unstructured.Unstructured, error) {
	at, err := s.in(ref.Workspace)
	if err != nil {
		return nil, err
	}
	return at.Object(ctx, placeOf(ref))
}

// applyObject applies an object.
func (s *objects) applyObject(ctx context.Context, ref plan.Ref, o *unstructured.Unstructured, dryRun, force bool) (*unstructured.Unstructured, error) {
	at, err := s.in(ref.Workspace)
	if err != nil {
		return nil, err
	}
	return at.ApplyObject(ctx, placeOf(ref), o, dryRun, force)
}

// cannotAnswer reports whether an object is on a physical cluster that does not answer, or not to this user. What fails there does not
// prevent other changes.
func cannotAnswer(ref plan.Ref, err error) bool {
	if _, ok := topology.IsPhysical(ref.Workspace); !ok || err == nil {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsUnauthorized(err) || status.Status().Code >= 500
}

// issuing is the content of a Secret in a plan that will issue it.
const issuing = "(issued when it is applied)"

// withCredential returns a Secret with the kubeconfig that it is for: the current one as long as it fits, then a new one. Without issue,
// the new one is only a placeholder.
func (s *objects) withCredential(ctx context.Context, live, want *unstructured.Unstructured, issue bool) (*unstructured.Unstructured, error) {
	place := want.GetAnnotations()[topology.AnnotationCredential]
	if place == "" {
		return want, nil
	}
	name, _ := topology.IsPhysical(place)
	cluster, err := s.physical(name)
	if err != nil {
		return nil, err
	}
	account := s.topology.Component(topology.ID(place)).Object()
	content := currentKubeconfig(live)
	switch {
	case cluster.Fits(ctx, content, api.NamespaceSyncer, account):
	case issue:
		if content, err = cluster.Issue(ctx, api.NamespaceSyncer, account, s.topology.Setup.Spec.PKI.CertificateValidity.Duration); err != nil {
			return nil, err
		}
	default:
		content = []byte(issuing)
	}
	want = want.DeepCopy()
	return want, unstructured.SetNestedField(want.Object, base64.StdEncoding.EncodeToString(content), "data", api.KeyKubeconfig)
}

// currentKubeconfig returns the kubeconfig in a Secret, or nothing.
func currentKubeconfig(secret *unstructured.Unstructured) []byte {
	if secret == nil {
		return nil
	}
	text, _, _ := unstructured.NestedString(secret.Object, "data", api.KeyKubeconfig)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return raw
}

// Objects returns everything that down removes: also the objects on physical clusters, because they are not part of the data of kcp.
func (r *Runtime) Objects(ctx context.Context) ([]plan.Item, error) {
	all, err := r.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	known, err := r.Record(ctx)
	if err != nil {
		return nil, err
	}
	s := &objects{topology: r.topology, open: r.open, installations: []string{known.Installation}}
	for _, placed := range known.Placed {
		ref := placed.Ref()
		if _, ok := topology.IsPhysical(ref.Workspace); !ok {
			continue
		}
		live, err := s.object(ctx, ref)
		switch {
		case errors.Is(err, errNoCluster):
			continue
		case cannotAnswer(ref, err):
			all = append(all, plan.Item{Ref: ref, Component: placed.Component, Action: plan.Delete}) // its deletion fails with the reason
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", ref, err)
		case live != nil && s.owns(live):
			all = append(all, plan.Item{Ref: ref, Component: placed.Component, Action: plan.Delete, Live: live})
		}
	}
	return all, nil
}
