// Package adopt reads an installation of kcp-operator from the namespace that it runs in, and removes what kcp-operator
// made as soon as the components of kcpctl serve instead.
package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// settle is how long a running kcp-operator may take to restore what was removed from its objects.
const settle = 10 * time.Second

// Installation is the installations of kcp-operator in a namespace. Its methods change only the installations that they
// name.
type Installation struct {
	cl  *cluster.Client
	now func() time.Time
	// Settle is how long to wait for what a running kcp-operator restores.
	Settle time.Duration
}

// Open finds the cluster of an installation as kubectl does. It sends no request.
func Open(c topology.Cluster, o cluster.Options) (*Installation, error) {
	cl, err := cluster.New(c, o)
	return Of(cl, o.Now), err
}

// Of returns the installations in the namespace of a client.
func Of(cl *cluster.Client, now func() time.Time) *Installation {
	return &Installation{cl: cl, now: now, Settle: settle}
}

// Where names the cluster and the namespace.
func (i *Installation) Where() string { return i.cl.Where() }

// resource is one of the APIs of kcp-operator.
func resource(r operator.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: operator.Group, Version: operator.Version, Resource: r.Name}
}

// Objects returns the objects of kcp-operator's APIs in the namespace, without what the API server and controllers add
// to them, and without those that belong to other RootShards only. One without an image tag gets the tag that its
// servers run. Without a name, it fails unless there is exactly one RootShard.
func (i *Installation) Objects(ctx context.Context, rootShard string) ([]unstructured.Unstructured, error) {
	all, err := i.all(ctx)
	if err != nil {
		return nil, err
	}
	names := rootShards(all)
	switch {
	case len(names) == 0:
		return nil, i.noRootShard(ctx)
	case rootShard == "" && len(names) > 1:
		return nil, clierr.New(clierr.BadInput, "name one of them with --root-shard",
			"%s has several RootShards, and a setup is one installation: %s", i.cl.Where(), strings.Join(names, ", "))
	case rootShard == "":
		rootShard = names[0]
	case !slices.Contains(names, rootShard):
		return nil, clierr.New(clierr.BadInput, "its RootShards are: "+strings.Join(names, ", "),
			"%s has no RootShard %s", i.cl.Where(), rootShard)
	}
	members := operator.MembersOf(all)
	all = slices.DeleteFunc(all, func(o unstructured.Unstructured) bool {
		roots := members[id(o)]
		return len(roots) > 0 && !slices.Contains(roots, rootShard)
	})
	for _, o := range all {
		for _, f := range [][]string{
			{"status"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"},
			{"metadata", "generation"}, {"metadata", "creationTimestamp"}, {"metadata", "finalizers"},
			{"metadata", "ownerReferences"}, {"metadata", "annotations", corev1.LastAppliedConfigAnnotation},
		} {
			unstructured.RemoveNestedField(o.Object, f...)
		}
		if o.GetKind() != "RootShard" {
			unstructured.RemoveNestedField(o.Object, "metadata", "uid")
		}
	}
	return all, i.addTags(ctx, all)
}

// addTags adds the image tag that the servers of an object run, unless the object has a tag: the default differs
// between releases of kcp-operator.
func (i *Installation) addTags(ctx context.Context, all []unstructured.Unstructured) error {
	for _, o := range all {
		tag, _, _ := unstructured.NestedString(o.Object, "spec", "image", "tag")
		if tag != "" || o.GetKind() == "Kubeconfig" {
			continue
		}
		tag, err := Tag(ctx, i.cl, operator.Service(o.GetKind(), o.GetName()))
		if err != nil {
			return err
		}
		if tag == "" {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, tag, "spec", "image", "tag"); err != nil {
			return fmt.Errorf("%s: %w", id(o), err)
		}
	}
	return nil
}

// Tag returns the tag of the image that the servers behind a Service of kcp-operator run. It is empty if they do not
// exist, or if their image has no tag.
func Tag(ctx context.Context, cl *cluster.Client, service string) (string, error) {
	deployment, err := cl.Get(ctx, kind.Deployment, service) // it has the name of the Service
	if deployment == nil || err != nil {
		return "", err
	}
	return record.ImageTag(topology.RootShard, deployment), nil
}

// noRootShard is the error of a namespace without a RootShard.
func (i *Installation) noRootShard(ctx context.Context) error {
	if err := i.refuseChart(ctx); err != nil {
		return err
	}
	return clierr.New(clierr.Failed,
		"name its namespace with --namespace: "+i.cl.Kubectl("get rootshards.operator.kcp.io --all-namespaces"),
		"%s has no RootShard of kcp-operator", i.cl.Where())
}

func id(o unstructured.Unstructured) operator.Object {
	return operator.Object{Kind: o.GetKind(), Name: o.GetName()}
}

// rootShards returns the names of the RootShards.
func rootShards(all []unstructured.Unstructured) []string {
	var names []string
	for _, o := range all {
		if o.GetKind() == "RootShard" {
			names = append(names, o.GetName())
		}
	}
	return names
}

// from returns the objects in the namespace, and which belong to which RootShard. It fails if the RootShard of a setup
// is another one than that from which the setup was imported.
func (i *Installation) from(ctx context.Context, origin operator.Origin) ([]unstructured.Unstructured, operator.Members,
	error) {
	all, err := i.all(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range all {
		if o.GetKind() == "RootShard" && o.GetName() == origin.Name && origin.UID != "" &&
			string(o.GetUID()) != origin.UID {
			return nil, nil, clierr.New(clierr.Failed,
				"name the right namespace or cluster in the setup file; if the setup is to take over this RootShard, "+
					"import it again: kcpctl import --from-cluster",
				"RootShard %s/%s (%s) has the UID %s, and the setup was imported from another one, %s; nothing was "+
					"changed",
				i.cl.Namespace, o.GetName(), i.cl.Where(), o.GetUID(), origin.UID)
		}
	}
	return all, operator.MembersOf(all), nil
}

// all returns the objects of those APIs of kcp-operator that the cluster has.
func (i *Installation) all(ctx context.Context) ([]unstructured.Unstructured, error) {
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

// Members returns which objects of kcp-operator belong to which RootShard. It fails if the RootShard of a setup is
// another one than that from which the setup was imported.
func (i *Installation) Members(ctx context.Context, origin operator.Origin) (operator.Members, error) {
	_, members, err := i.from(ctx, origin)
	return members, err
}

// PKI returns the authorities of an installation, and the service-account keys of its shards.
func (i *Installation) PKI(ctx context.Context, origin operator.Origin) (*pki.State, error) {
	objects, err := i.parts(ctx, origin)
	if err != nil {
		return nil, err
	}
	shards := []string{origin.Name}
	for _, o := range objects {
		if o.GetKind() == "Shard" {
			shards = append(shards, o.GetName())
		}
	}
	authorities := map[topology.CA]pki.Source{}
	for ca, name := range operator.AuthoritySecrets(origin.Name) {
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

// parts returns the objects of an installation. It fails if its RootShard does not exist.
func (i *Installation) parts(ctx context.Context, origin operator.Origin) ([]unstructured.Unstructured, error) {
	objects, members, err := i.from(ctx, origin)
	switch names := rootShards(objects); {
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, i.noRootShard(ctx)
	case !slices.Contains(names, origin.Name):
		return nil, clierr.New(clierr.Failed, "correct spec.takeOver.rootShard, or the namespace of the root shard",
			"%s has no RootShard %s, from which the setup was imported", i.cl.Where(), origin.Name)
	}
	return slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool {
		return !slices.Contains(members[id(o)], origin.Name)
	}), nil
}

// pair returns the certificate and the key in a Secret.
func (i *Installation) pair(ctx context.Context, name string) (pki.Source, error) {
	secret, err := i.cl.Secret(ctx, name)
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

// front reports whether a Deployment runs a front-proxy, which uses the other servers.
func front(o unstructured.Unstructured) bool {
	component, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels",
		"app.kubernetes.io/component")
	return strings.HasSuffix(component, "proxy")
}
