package workspace

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// store reads and writes objects: in the workspaces of a kcp, or on a physical cluster.
type store interface {
	Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error)
	ApplyObject(ctx context.Context, p plan.Ref, o *unstructured.Unstructured,
		dryRun, force bool) (*unstructured.Unstructured, error)
	DeleteObject(ctx context.Context, p plan.Ref, seen *unstructured.Unstructured) error
}

// Physical is a client for a cluster of spec.workloads, or for one whose APIs an agent on this machine publishes.
type Physical interface {
	store
	check.PhysicalCluster
	// Objects lists the objects of a kind in a namespace, with a selector for labels.
	Objects(ctx context.Context, p plan.Ref, selector string) ([]unstructured.Unstructured, error)
	// DeleteNamespace deletes a namespace if it is empty. Otherwise it returns an object that is in it.
	DeleteNamespace(ctx context.Context, seen *unstructured.Unstructured) (rest string, err error)
	// Issue returns a kubeconfig with a new token of a ServiceAccount.
	Issue(ctx context.Context, namespace, account string, validity time.Duration) ([]byte, error)
	// Fits reports whether a kubeconfig of Issue can still be used.
	Fits(ctx context.Context, kubeconfig []byte, namespace, account string) bool
}

// Open returns a client for a cluster. It sends no request. server is the URL at which others reach the API server;
// empty: the URL in the kubeconfig.
type Open func(c topology.Cluster, server string) (Physical, error)

// workload returns a client for a cluster of spec.workloads.
func (o Open) workload(c v1alpha1.WorkloadCluster) (Physical, error) {
	return o(topology.Cluster{Name: c.Name, Context: c.Context, Kubeconfig: c.Kubeconfig}, c.Server)
}

// service returns a client for a cluster of spec.clusters whose APIs agents on this machine publish.
func (o Open) service(c v1alpha1.Cluster) (Physical, error) {
	return o(topology.Cluster{
		Name: c.Name, Context: c.Context, Kubeconfig: c.Kubeconfig, Namespace: c.Namespace, As: c.As,
		AsGroups: c.AsGroups,
	}, "")
}

// hintGone is the next step if objects on a cluster cannot be deleted.
func hintGone(place string) string {
	if isService(place) {
		return "make the cluster reachable, and run the command again"
	}
	return "make the cluster reachable, or remove it from spec.workloads.clusters: then its ServiceAccount stays there"
}

// errNoCluster means that the setup no longer has a cluster.
var errNoCluster = errors.New("the setup does not have this cluster")

// errNoServiceCluster means that the setup no longer has a cluster whose APIs agents on this machine have published.
var errNoServiceCluster = errors.New("spec.clusters no longer has it")

// on returns the client for a place on a cluster.
func (s *objects) on(place string) (Physical, error) {
	name, physical := topology.IsPhysical(place)
	if !physical {
		return s.serviceCluster(place)
	}
	if c := s.topology.Component(topology.IDOf(topology.Physical, name)); c != nil {
		return s.open.workload(c.Physical.WorkloadCluster)
	}
	if c, ok := s.removed[name]; ok {
		return s.open.workload(c)
	}
	return nil, fmt.Errorf("cluster %s: %w", name, errNoCluster)
}

// configError means that the setup file, or the kubeconfig, is wrong about a cluster.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// serviceCluster returns the client for a cluster whose APIs agents on this machine publish. It must be in the setup
// file as long as objects of an agent are on it.
func (s *objects) serviceCluster(place string) (Physical, error) {
	name, _ := topology.IsServiceCluster(place)
	for _, c := range s.topology.Setup.Spec.Clusters {
		if c.Name != name {
			continue
		}
		at, err := s.open.service(c)
		if err != nil {
			return nil, configError{err}
		}
		return at, nil
	}
	return nil, clierr.New(clierr.BadInput,
		"add the cluster to the setup file again, until kcpctl up has removed its agents; or, if it is lost for good, "+
			"pass --orphan with them",
		"objects of agents are on the cluster %s: %w", name, errNoServiceCluster)
}

func isService(place string) bool {
	_, is := topology.IsServiceCluster(place)
	return is
}

// in returns the store of a place: a workspace, or a cluster.
func (s *objects) in(place string) (store, error) {
	if topology.IsKubernetes(place) {
		return s.on(place)
	}
	return s.client, nil
}

// object returns a live object, or nil.
func (s *objects) object(ctx context.Context, ref plan.Ref) (*unstructured.Unstructured, error) {
	at, err := s.in(ref.Workspace)
	if err != nil {
		return nil, err
	}
	return at.Object(ctx, ref)
}

// applyObject applies an object.
func (s *objects) applyObject(ctx context.Context, ref plan.Ref, o *unstructured.Unstructured,
	dryRun, force bool) (*unstructured.Unstructured, error) {
	at, err := s.in(ref.Workspace)
	if err != nil {
		return nil, err
	}
	return at.ApplyObject(ctx, ref, o, dryRun, force)
}

// cannotAnswer reports whether an object is on a cluster that does not answer, or not to this user. What fails there
// does not prevent other changes.
func cannotAnswer(ref plan.Ref, err error) bool {
	if err == nil || !topology.IsKubernetes(ref.Workspace) || errors.As(err, new(configError)) {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsUnauthorized(err) || status.Status().Code >= 500
}

// begun reports whether a run has begun to use a place. An agent on a new cluster needs that to answer before anything
// is written; clusters of workloads have a check for that.
func begun(place string, known []record.Placed) bool {
	return !isService(place) || has(place, known)
}

// has reports whether the setup has objects in a place.
func has(place string, known []record.Placed) bool {
	return slices.ContainsFunc(known, func(o record.Placed) bool { return o.Workspace == place })
}

// shardDown reports whether an object is in a workspace whose shard does not answer: front-proxies do instead of it
// (kcp: pkg/proxy/metrics). up starts its process again, so that must not prevent it. A shard that has just started
// does not serve all APIs.
func shardDown(ref plan.Ref, err error) bool {
	if _, physical := topology.IsPhysical(ref.Workspace); physical {
		return false
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 500 || kcp.LacksAPI(err)
}

// issuing is the content of a Secret in a plan that will issue it.
const issuing = "(issued when it is applied)"

// withCredential returns a Secret with the kubeconfig that it is for: the current one as long as it fits, then a new
// one. Without issue, the new one is only a placeholder.
func (s *objects) withCredential(ctx context.Context, live, want *unstructured.Unstructured,
	issue bool) (*unstructured.Unstructured, error) {
	place := want.GetAnnotations()[topology.AnnotationCredential]
	if place == "" {
		return want, nil
	}
	cluster, err := s.on(place)
	if err != nil {
		return nil, err
	}
	c := s.topology.Component(topology.ID(want.GetAnnotations()[topology.AnnotationComponent]))
	namespace, account := api.NamespaceSyncer, c.Object(topology.TokenPart)
	if c.Agent != nil {
		namespace, account = c.ServiceNamespace(), c.Object()
	}
	content := currentKubeconfig(live)
	switch {
	case cluster.Fits(ctx, content, namespace, account):
	case issue:
		if content, err = cluster.Issue(ctx, namespace, account, s.topology.Setup.Spec.PKI.CertificateValidity.Duration); err != nil {
			return nil, err
		}
	default:
		content = []byte(issuing)
	}
	data, files := map[string][]byte{api.KeyKubeconfig: content}, c.ClusterCredential()
	switch {
	case files != nil && string(content) == issuing:
		data[render.TokenKey] = content
	case files != nil:
		data[api.KeyKubeconfig], data[render.TokenKey], err = kubeconfig.WithTokenFile(content,
			topology.TokenFile(files.Kubeconfig))
		if err != nil {
			return nil, err
		}
	}
	want = want.DeepCopy()
	for key, value := range data {
		if err := unstructured.SetNestedField(want.Object, base64.StdEncoding.EncodeToString(value), "data", key); err != nil {
			return nil, err
		}
	}
	return want, nil
}

// withIdentity returns a Cluster with the identity that it was created with: for a new one, the UID of the physical
// cluster that answers to the user. A name is not an identity: a syncer of an earlier Cluster of the name can still
// run. A plan lacks it if the cluster does not answer. If the user may not read it, the controller records the UID of
// the first cluster that answers for the new Cluster.
func (s *objects) withIdentity(ctx context.Context, live, want *unstructured.Unstructured,
	issue bool) (*unstructured.Unstructured, error) {
	if want.GroupVersionKind() != api.ClusterGVK() {
		return want, nil
	}
	uid := ""
	if live != nil {
		uid = live.GetAnnotations()[api.AnnotationPhysicalUID]
	} else {
		cluster, err := s.on(topology.OnPhysical(want.GetName()))
		if err == nil {
			uid, err = cluster.Identity(ctx)
		}
		switch {
		case err != nil && issue:
			return nil, fmt.Errorf("read the UID of cluster %s: %w", want.GetName(), err)
		case err != nil:
			return want, nil
		}
	}
	if uid == "" {
		return want, nil
	}
	want = want.DeepCopy()
	annotations := want.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[api.AnnotationPhysicalUID] = uid
	want.SetAnnotations(annotations)
	return want, nil
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

// Objects returns everything that belongs to the setup: also the objects on physical clusters, because they are not
// part of the data of kcp. Only down deletes them: a run that finishes with these items leaves them as they are.
func (r *Runtime) Objects(ctx context.Context) ([]plan.Item, error) {
	all, err := r.Runtime.Objects(ctx)
	if err != nil {
		return nil, err
	}
	known, err := r.Record(ctx)
	if err != nil {
		return nil, err
	}
	onClusters, _ := divided(known.Placed, func(o record.Placed) string { return o.Workspace })
	if len(onClusters) == 0 {
		return all, nil
	}
	s, err := r.clusters(ctx)
	if err != nil {
		return nil, err
	}
	for _, placed := range onClusters {
		ref := placed.Ref()
		live, err := s.object(ctx, ref)
		switch {
		case errors.Is(err, errNoCluster):
			continue
		case cannotAnswer(ref, err), errors.As(err, new(configError)):
			// Its deletion fails with the reason.
			all = append(all, plan.Item{Ref: ref, Component: placed.Component, Action: plan.Unchanged})
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", ref, err)
		case live != nil && s.owns(live):
			all = append(all, plan.Item{Ref: ref, Component: placed.Component, Action: plan.Unchanged, Live: live})
		}
	}
	return all, nil
}

// Facts adds facts about the physical clusters, and about the clusters whose APIs agents on this machine publish.
func (r *Runtime) Facts() check.Facts {
	out := r.Runtime.Facts()
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	asked := func(name, place string, at Physical, err error) check.Physical {
		out := check.Physical{Name: name, PhysicalCluster: at, Err: err, Registered: known != nil &&
			has(place, known.Placed)}
		if at != nil {
			out.List = at.Objects
		}
		return out
	}
	for _, c := range r.topology.OfKind(topology.Physical) {
		at, err := r.open.workload(c.Physical.WorkloadCluster)
		out.Physical = append(out.Physical, asked(c.Name, topology.OnPhysical(c.Name), at, err))
	}
	for _, c := range r.topology.Setup.Spec.Clusters {
		place := topology.OnServiceCluster(c.Name)
		if slices.ContainsFunc(r.topology.OfKind(topology.Agent), func(a *topology.Component) bool { return a.Agent.ServicePlace == place }) {
			at, err := r.open.service(c)
			out.Services = append(out.Services, asked(c.Name, place, at, err))
		}
	}
	return out
}
