package day2

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/guard"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalGuard exports Deployments from a workspace on one shard to a workspace on another one. Without the policies
// of package guard, kubectl apply loses a container. With them it is refused, and server-side apply loses nothing.
func TestLocalGuard(t *testing.T) {
	s := framework.NewLocal(t, "sharded")
	s.Up(t)
	framework.CreateWorkspaces(t, s)
	g := &guarded{Setup: s, provider: s.Status(t).URL + "/clusters/root:on-alpha", consumer: s.Status(t).URL + "/clusters/root:on-beta"}
	framework.Step(t, "Export", g.Export)
	framework.Step(t, "Loss", g.loss)
	framework.Step(t, "Guard", g.guard)
	framework.Step(t, "Label", g.label)
	framework.Step(t, "Semantics", g.semantics)
	framework.Step(t, "Clusters", g.clusters)
}

// guarded is a setup in which a workspace exports Deployments.
type guarded struct {
	*framework.Setup
	provider, consumer string
}

// deployments is a part of the schema of Deployments, with the merge keys of Kubernetes.
func deployments(t *testing.T) negotiate.API {
	t.Helper()
	raw, err := os.ReadFile("testdata/deployments.yaml")
	require.NoError(t, err)
	s := &apiextensionsv1.JSONSchemaProps{}
	require.NoError(t, yaml.UnmarshalStrict(raw, s))
	return negotiate.API{
		Group: "apps", Version: "v1", Scope: apiextensionsv1.NamespaceScoped, Schema: s,
		Names:        apiextensionsv1.CustomResourceDefinitionNames{Plural: "deployments", Kind: "Deployment"},
		Subresources: apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}
}

// Run runs kubectl with a manifest as its input.
func (g *guarded) Run(t *testing.T, server, manifest string, args ...string) framework.Result {
	t.Helper()
	c := g.Command("kubeconfig", append([]string{"admin", "--", "kubectl", "--server", server}, args...)...)
	c.Stdin = manifest
	return c.Run(t.Context(), t)
}

// create applies objects to the workspace with the export.
func (g *guarded) create(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		raw, err := json.Marshal(o)
		require.NoError(t, err)
		framework.Eventually(t.Context(), t, func() error {
			r := g.Run(t, g.provider, string(raw), "apply", "--server-side", "--filename", "-")
			if r.Code != 0 {
				return fmt.Errorf("%s", r.Stderr)
			}
			return nil
		})
	}
}

const binding = `apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: kubernetes}
spec: {reference: {export: {path: root:on-alpha, name: kubernetes}}}
`

func (g *guarded) Export(t *testing.T) {
	in := negotiate.Input{
		APIs:     []schema.GroupResource{{Group: "apps", Resource: "deployments"}},
		Clusters: []negotiate.Cluster{{Name: "c1", APIs: []negotiate.API{deployments(t)}}},
	}
	out, err := negotiate.Negotiate(in)
	require.NoError(t, err)
	g.create(t, out.Schemas...)
	g.create(t, out.Export)
	framework.Eventually(t.Context(), t, func() error { // the shard of the consumer sees the export some time after it was written
		_, err := g.Run(t, g.consumer, binding, "apply", "--server-side", "--filename", "-").Output()
		return err
	})
	g.Run(t, g.consumer, "", "wait", "apibinding", "kubernetes", "--for=condition=Ready", "--timeout=3m").OK(t)

	// The second negotiation reads what the first has written.
	in.Export = &unstructured.Unstructured{}
	framework.Eventually(t.Context(), t, func() error {
		err := g.Run(t, g.provider, "", "get", "apiexport", api.ExportWorkloads, "--output", "json").Decode(in.Export)
		if err == nil && negotiate.Identity(in.Export) == "" {
			err = fmt.Errorf("the APIExport has no identity")
		}
		return err
	})
	read := &unstructured.Unstructured{}
	r := g.Run(t, g.provider, "", "get", "apiresourceschema", out.Schemas[0].GetName(), "--output", "json").OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), read))
	in.Schemas = []*unstructured.Unstructured{read}
	again, err := negotiate.Negotiate(in)
	require.NoError(t, err)
	require.Empty(t, again.Schemas, "the published schema is read back as it was written")
	require.Equal(t, api.APIPublished, again.States["c1"][0].State)
	g.create(t, again.ClusterExports...)
}

// manifest returns a Deployment with two containers.
func manifest(name, image string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "%s", ports: [{containerPort: 80}], env: [{name: A, value: b}]}
      - {name: log, image: log:1}
`, name, image)
}

// containers returns the containers of a Deployment: their names, images, and the numbers of their ports.
func (g *guarded) containers(t *testing.T, name string) string {
	t.Helper()
	const path = `{range .spec.template.spec.containers[*]}{.name}={.image}/{.ports[*].containerPort}/{.env[*].name} {end}`
	return strings.TrimSpace(g.Run(t, g.consumer, "", "get", "deployment", name, "--output", "jsonpath="+path).OK(t).Stdout)
}

// loss fails as soon as kcp merges the items of lists. Then the policy about patches is no longer needed.
func (g *guarded) loss(t *testing.T) {
	framework.Eventually(t.Context(), t, func() error {
		if r := g.Run(t, g.consumer, manifest("lost", "web:1"), "apply", "--filename", "-"); r.Code != 0 {
			return fmt.Errorf("%s", r.Stderr)
		}
		return nil
	})
	require.Equal(t, "web=web:1/80/A log=log:1//", g.containers(t, "lost"))
	g.Run(t, g.consumer, manifest("lost", "web:2"), "apply", "--filename", "-").OK(t)
	require.Equal(t, "web=web:2//", g.containers(t, "lost"), "kcp has merged the items of lists: the policy %s is not needed for it", guard.PolicyPatches)
}

// refusedWith returns an error unless the command was refused with a message.
func refusedWith(r framework.Result, message string) error {
	if r.Code != 1 || !strings.Contains(r.Stderr, message) {
		return fmt.Errorf("%s: exit code %d, without %q: %s", r.Line, r.Code, message, r.Stderr)
	}
	return nil
}

func (g *guarded) guard(t *testing.T) {
	g.create(t, guard.Objects([]schema.GroupResource{{Group: "apps", Resource: "deployments"}})...)
	g.Run(t, g.consumer, manifest("web", "web:1"), "apply", "--filename", "-").OK(t)
	n := 2
	framework.Eventually(t.Context(), t, func() error {
		// The shard of the consumer sees the policies some time after they were written. Each try changes something.
		n++
		r := g.Run(t, g.consumer, manifest("lost", fmt.Sprintf("web:%d", n)), "apply", "--filename", "-")
		return refusedWith(r, "use kubectl apply --server-side")
	})
	g.Run(t, g.consumer, manifest("web", "web:2"), "apply", "--filename", "-").Refused(t, 1, "use kubectl apply --server-side")
	g.Run(t, g.consumer, "", "set", "image", "deployment/web", "web=web:2").Refused(t, 1, "use kubectl apply --server-side")
	g.Run(t, g.consumer, "", "rollout", "restart", "deployment/web").OK(t) // it changes no list
	require.Equal(t, "web=web:1/80/A log=log:1//", g.containers(t, "web"))

	g.Run(t, g.consumer, manifest("web", "web:2"), "apply", "--server-side", "--force-conflicts", "--filename", "-").OK(t)
	require.Equal(t, "web=web:2/80/A log=log:1//", g.containers(t, "web"))
}

func (g *guarded) label(t *testing.T) {
	const key = api.LabelCluster
	n := 0
	framework.Eventually(t.Context(), t, func() error { // as above: another policy may be seen later
		n++
		r := g.Run(t, g.consumer, "", "label", "--overwrite", "deployment", "lost", fmt.Sprintf("%s=c%d", key, n))
		return refusedWith(r, "the label "+key+" cannot be changed")
	})
	g.Run(t, g.consumer, "", "label", "deployment", "web", key+"=c1").OK(t)
	g.Run(t, g.consumer, "", "label", "deployment", "web", "other=x").OK(t)
	g.Run(t, g.consumer, "", "label", "--overwrite", "deployment", "web", key+"=c2").Refused(t, 1, "the label "+key+" cannot be changed")
	g.Run(t, g.consumer, "", "label", "deployment", "web", key+"-").Refused(t, 1, "the label "+key+" cannot be changed")
}

func (g *guarded) semantics(t *testing.T) {
	for _, mistake := range []struct{ replaced, by, message string }{
		{"matchLabels: {app: web}", "matchLabels: {app: other}", "spec.selector does not match the labels of spec.template"},
		{"replicas: 2", "replicas: -1", "spec.replicas must not be negative"},
	} {
		bad := strings.Replace(manifest("bad", "web:1"), mistake.replaced, mistake.by, 1)
		framework.Eventually(t.Context(), t, func() error {
			return refusedWith(g.Run(t, g.consumer, bad, "create", "--dry-run=server", "--filename", "-"), mistake.message)
		})
		g.Run(t, g.consumer, bad, "create", "--filename", "-").Refused(t, 1, mistake.message)
	}
	moved := strings.ReplaceAll(manifest("web", "web:2"), "app: web", "app: other")
	g.Run(t, g.consumer, moved, "apply", "--server-side", "--force-conflicts", "--filename", "-").Refused(t, 1, "spec.selector cannot be changed")
}

// clusters creates the CRD of Cluster, and objects with mistakes.
func (g *guarded) clusters(t *testing.T) {
	crd, err := api.CRD()
	require.NoError(t, err)
	g.create(t, crd)
	g.Run(t, g.provider, "", "wait", "crd", crd.GetName(), "--for=condition=Established", "--timeout=3m").OK(t)
	const text = "apiVersion: workloads.kcp.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {%s}\n"
	for _, tc := range []struct{ name, spec, problem string }{
		{"a--b", "", "the name has at most 40"},
		{"c1", "syncMode: Push", "kubeconfigSecretRef is required"},
		{"c1", "syncMode: Pull, kubeconfigSecretRef: {namespace: default, name: x}", "kubeconfigSecretRef is only used if"},
		{"c1", "evictAfter: soon", "must be a duration"},
		{"c1", "syncMode: Sideways", "Unsupported value"},
		{"c1", "podSecurity: Baseline", "Unsupported value"},
	} {
		g.Run(t, g.provider, fmt.Sprintf(text, tc.name, tc.spec), "create", "--filename", "-").Refused(t, 1, tc.problem)
	}
	g.Run(t, g.provider, fmt.Sprintf(text, "c1", "evictAfter: 1m30s"), "create", "--filename", "-").OK(t)
	r := g.Run(t, g.provider, "", "get", "cluster", "c1", "--output", "json").OK(t)
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), u))
	c, err := api.ClusterOf(u)
	require.NoError(t, err)
	require.Equal(t, v1alpha1.SyncModePull, c.Spec.SyncMode)
	require.Equal(t, "1m30s", c.EvictAfter().String())
}
