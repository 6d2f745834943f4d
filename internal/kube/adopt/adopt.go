// Package adopt reads an installation of kcp-operator from the namespace that it runs in, and removes what kcp-operator
// made as soon as the components of kcpctl serve instead.
package adopt

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/operator"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Installation is an installation of kcp-operator in a namespace.
type Installation struct{ cl *cluster.Client }

// Open finds the cluster of an installation as kubectl does. It sends no request.
func Open(c topology.Cluster, o cluster.Options) (*Installation, error) {
	cl, err := cluster.New(c, o)
	return &Installation{cl}, err
}

// Where names the cluster and the namespace.
func (i *Installation) Where() string { return i.cl.Where() }

// resource is one of the APIs of kcp-operator.
func resource(r operator.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: operator.Group, Version: operator.Version, Resource: r.Name}
}

// Objects returns the objects of kcp-operator's APIs in the namespace, without what the API server and controllers add to
// them. It fails if there is no RootShard.
func (i *Installation) Objects(ctx context.Context) ([]unstructured.Unstructured, error) {
	all, err := i.all(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(o unstructured.Unstructured) bool { return o.GetKind() == "RootShard" }) {
		if err := i.refuseChart(ctx); err != nil {
			return nil, err
		}
		return nil, clierr.New(clierr.Failed,
			"name its namespace with --namespace: "+i.cl.Kubectl("get rootshards.operator.kcp.io --all-namespaces"),
			"%s has no RootShard of kcp-operator", i.cl.Where())
	}
	for _, o := range all {
		for _, f := range [][]string{
			{"status"}, {"metadata", "managedFields"}, {"metadata", "uid"}, {"metadata", "resourceVersion"},
			{"metadata", "generation"}, {"metadata", "creationTimestamp"}, {"metadata", "finalizers"},
			{"metadata", "ownerReferences"}, {"metadata", "annotations", corev1.LastAppliedConfigAnnotation},
		} {
			unstructured.RemoveNestedField(o.Object, f...)
		}
	}
	return all, nil
}

// all returns the objects of those APIs of kcp-operator that the cluster has.
func (i *Installation) all(ctx context.Context) ([]unstructured.Unstructured, error) {
	ctx = cluster.Quiet(ctx)
	if err := i.cl.Connect(ctx); err != nil {
		return nil, err
	}
	var out []unstructured.Unstructured
	for _, r := range slices.Backward(operator.Resources) {
		list, err := i.cl.Resource(resource(r)).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, i.cl.Explain(err, "list %s", r.Name)
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// PKI returns the authorities of the installation, and the service-account keys of its shards.
func (i *Installation) PKI(ctx context.Context) (*pki.State, error) {
	objects, err := i.Objects(ctx)
	if err != nil {
		return nil, err
	}
	var shards []string // the root shard first
	for _, kind := range []string{"RootShard", "Shard"} {
		for _, o := range objects {
			if o.GetKind() == kind {
				shards = append(shards, o.GetName())
			}
		}
	}
	authorities := map[topology.CA]pki.Source{}
	for ca, name := range operator.AuthoritySecrets(shards[0]) {
		if authorities[ca], err = i.pair(ctx, name); err != nil {
			return nil, err
		}
	}
	client := authorities[topology.ClientCA]
	if client.Bundle, err = i.clientBundle(ctx, objects); err != nil {
		return nil, err
	}
	authorities[topology.ClientCA] = client
	var keys []pki.Source
	for _, shard := range shards {
		key, err := i.pair(ctx, operator.ServiceAccountSecret(shard))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return pki.TakeOver(authorities, keys)
}

// pair returns the certificate and the key in a Secret.
func (i *Installation) pair(ctx context.Context, name string) (pki.Source, error) {
	secret, err := i.cl.Secret(cluster.Quiet(ctx), name)
	if err != nil {
		return pki.Source{}, err
	}
	out := pki.Source{Name: "Secret " + i.cl.Namespace + "/" + name}
	if secret == nil {
		return out, clierr.New(clierr.Failed, "wait until cert-manager has created it, or restore it from a backup",
			"%s (%s) does not exist", out.Name, i.cl.Where())
	}
	out.Pair = pki.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
	return out, nil
}

// owned reports whether an object belongs to one of kcp-operator's.
func owned(o unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return operator.OwnGroup(r.APIVersion)
	})
}

// podLabel returns a recommended label of the pods of a Deployment.
func podLabel(o unstructured.Unstructured, name string) string {
	v, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/"+name)
	return v
}

// server reports whether a Deployment is kcp-operator's.
func server(o unstructured.Unstructured) bool {
	return owned(o) || podLabel(o, "managed-by") == operator.ManagedBy
}

// front reports whether a Deployment is that of a front-proxy, which uses the others.
func front(o unstructured.Unstructured) bool {
	return strings.HasSuffix(podLabel(o, "component"), "proxy")
}
