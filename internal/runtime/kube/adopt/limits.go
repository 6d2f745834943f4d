package adopt

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// chartLabel is the label with the name and the version of a chart, and releaseLabel the label with the name of the
// release (chart kcp: templates/_helpers.tpl, common.labels).
const (
	chartLabel   = "helm.sh/chart"
	releaseLabel = "app.kubernetes.io/instance"
)

// refuseChart fails if the namespace has an installation of kcp's helm chart, which cannot be taken over while it runs:
// its servers and the servers of kcpctl would not trust each other.
func (i *Installation) refuseChart(ctx context.Context) error {
	deployments, err := i.cl.List(ctx, kind.Deployment, chartLabel)
	if err != nil {
		return err
	}
	for _, d := range deployments {
		chart, is := strings.CutPrefix(d.GetLabels()[chartLabel], "kcp-")
		if !is || chart == "" || chart[0] < '0' || chart[0] > '9' { // such as kcp-operator
			continue
		}
		release := d.GetLabels()[releaseLabel]
		return clierr.New(clierr.Failed,
			"import its values: helm get values "+release+" --all -n "+i.cl.Namespace+
				" -o yaml > values.yaml; kcpctl import -f values.yaml -n "+i.cl.Namespace+
				"; stop its servers before kcpctl up",
			"%s has the release %s of the helm chart kcp %s: only an installation of kcp-operator can be taken over "+
				"while it runs", i.cl.Where(), release, chart)
	}
	return nil
}

// clientBundle returns the certificates of further authorities of clients that the components trust, if all of them
// trust the same. kcpctl's components cannot trust different ones, and a component must not trust more than before.
func (i *Installation) clientBundle(ctx context.Context, objects []unstructured.Unstructured) ([]byte, error) {
	with := ""
	without := ""
	name := ""
	for _, o := range objects {
		if !slices.Contains([]string{"RootShard", "Shard", "FrontProxy", "VirtualWorkspace"}, o.GetKind()) {
			continue
		}
		bundle, _, _ := unstructured.NestedString(o.Object, "spec", "clientCABundleRef", "name")
		what := o.GetKind() + " " + o.GetName()
		switch {
		case bundle == "":
			without = what
		case name == "":
			with = what
			name = bundle
		case bundle != name:
			without = what
		}
	}
	if name == "" {
		return nil, nil
	}
	if without != "" {
		return nil, clierr.New(clierr.Failed,
			"set spec.clientCABundleRef of all RootShards, Shards, FrontProxies and VirtualWorkspaces to one Secret "+
				"if all of them may accept its clients, or remove it everywhere",
			"%s trusts the client certificates of the authorities in Secret %s/%s, and %s does not: all components "+
				"of a setup trust the same ones; nothing was changed",
			with, i.cl.Namespace, name, without)
	}
	secret, err := i.cl.Secret(ctx, name)
	if err != nil {
		return nil, err
	}
	if secret == nil || len(secret.Data[corev1.TLSCertKey]) == 0 {
		return nil, clierr.New(clierr.Failed, "create it with the key "+corev1.TLSCertKey+
			", or remove spec.clientCABundleRef from the objects of "+operator.ManagedBy,
			"Secret %s/%s (%s), which %s refers to, does not exist or has no certificates", i.cl.Namespace, name,
			i.cl.Where(), with)
	}
	return secret.Data[corev1.TLSCertKey], nil
}

// Bundles returns the Secrets with the authorities with which clients of front-proxies verify them: the certificates
// only.
func (i *Installation) Bundles(ctx context.Context, objects []unstructured.Unstructured) ([]unstructured.Unstructured,
	error) {
	var out []unstructured.Unstructured
	for _, o := range objects {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "caBundleSecretRef", "name")
		if o.GetKind() != "FrontProxy" || name == "" || find(out, name) != nil {
			continue
		}
		secret, err := i.cl.Secret(ctx, name)
		if err != nil {
			return nil, err
		}
		if secret == nil {
			continue // import says what is missing
		}
		out = append(out, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": i.cl.Namespace},
			"stringData": map[string]any{corev1.TLSCertKey: string(secret.Data[corev1.TLSCertKey])},
		}})
	}
	return out, nil
}
