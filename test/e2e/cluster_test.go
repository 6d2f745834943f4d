//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// cluster runs a setup on the cluster of E2E_KUBECONFIG, in a namespace with the name of the setup.
type cluster struct {
	setup, namespace, kubeconfig, home string
}

func newCluster(t *testing.T, example string) *setup {
	t.Helper()
	name := newName()
	return newClusterNamed(t, example, name, name)
}

// newClusterNamed is newCluster for a setup with a name that need not be unique: its namespace is.
func newClusterNamed(t *testing.T, example, name, namespace string) *setup {
	t.Helper()
	given(t, "E2E_KCPCTL")
	c := &cluster{setup: name, namespace: namespace, kubeconfig: given(t, "E2E_KUBECONFIG"), home: t.TempDir()}
	t.Cleanup(func() { c.remove(t) }) // after kcpctl has removed the setup, if it can
	return newSetup(t, example, c.setup, c.home, c, "KUBECONFIG="+c.kubeconfig)
}

func (c *cluster) flags(command string) []string {
	flags := []string{"--namespace", c.namespace}
	if command == "kubeconfig" {
		flags = append(flags, "--port-forward")
	}
	return flags
}

// kubectl returns a kubectl command for the cluster, as its administrator.
func (c *cluster) kubectl(args ...string) command {
	return command{name: "kubectl", args: append([]string{"--kubeconfig", c.kubeconfig}, args...)}
}

// list returns the objects of some resources. A resource that no longer exists is not an error. Neither is an API
// server that does not answer for a moment.
func (c *cluster) list(ctx context.Context, t *testing.T, args ...string) (all []unstructured.Unstructured) {
	t.Helper()
	eventually(ctx, t, func() (err error) {
		all, err = c.tryList(ctx, t, args...)
		return err
	})
	return all
}

func (c *cluster) tryList(ctx context.Context, t *testing.T, args ...string) ([]unstructured.Unstructured, error) {
	t.Helper()
	var all struct{ Items []unstructured.Unstructured }
	r := c.kubectl(append([]string{"get", "--output", "json", "--show-managed-fields", "--ignore-not-found"}, args...)...).run(ctx, t)
	if r.code != 0 {
		return nil, fmt.Errorf("%s: %s", r.line, r.stderr)
	}
	if r.stdout != "" {
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &all))
	}
	return all.Items, nil
}

// objects returns all objects in the namespace, except events and the objects that Kubernetes itself creates.
func (c *cluster) objects(ctx context.Context, t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	eventually(ctx, t, func() (err error) { // a resource may be removed in between
		r := c.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").run(ctx, t)
		if r.code != 0 {
			return fmt.Errorf("%s: %s", r.line, r.stderr)
		}
		resources := slices.DeleteFunc(strings.Fields(r.stdout), func(r string) bool {
			return strings.HasPrefix(r, "events") || r == "endpoints"
		})
		all, err = c.tryList(ctx, t, strings.Join(resources, ","), "--namespace", c.namespace)
		return err
	})
	return slices.DeleteFunc(all, func(o unstructured.Unstructured) bool {
		name := o.GetKind() + "/" + o.GetName()
		return name == "ConfigMap/kube-root-ca.crt" || name == "ServiceAccount/default"
	})
}

// written returns checksums of all objects in the namespace, without their status: the status changes when an old pod
// ends, long after the last write.
func (c *cluster) written(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range append(c.objects(t.Context(), t), c.list(t.Context(), t, "namespaces", "--field-selector=metadata.name="+c.namespace)...) {
		if len(o.GetOwnerReferences()) > 0 {
			continue
		}
		delete(o.Object, "status")
		o.SetResourceVersion("") // a change of the status changes it too
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "status" }))
		content, err := json.Marshal(o.Object)
		require.NoError(t, err)
		out[o.GetKind()+"/"+o.GetName()] = fmt.Sprintf("%x", sha256.Sum256(content)) // some content is secret
	}
	return out
}

func (c *cluster) running(t *testing.T) map[string]instance {
	t.Helper()
	out := map[string]instance{}
	for _, pod := range c.list(t.Context(), t, "pods", "--namespace", c.namespace) {
		if pod.GetDeletionTimestamp() != nil || len(pod.GetOwnerReferences()) == 0 {
			continue
		}
		workload := strings.TrimSuffix(pod.GetOwnerReferences()[0].Name, "-"+pod.GetLabels()["pod-template-hash"])
		out[workload] = instance{string(pod.GetUID()), func(t *testing.T) {
			c.kubectl("delete", "pod", pod.GetName(), "--namespace", c.namespace, "--force", "--grace-period=0").run(t.Context(), t).ok(t)
		}}
	}
	return out
}

func (c *cluster) keys(t *testing.T) (authorities, readable map[string][]byte) {
	t.Helper()
	authorities, readable = map[string][]byte{}, map[string][]byte{}
	r := c.kubectl("get", "secrets", "--output", "json", "--namespace", c.namespace).run(t.Context(), t).ok(t)
	var secrets corev1.SecretList
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &secrets))
	for _, s := range secrets.Items {
		to := readable
		if s.Name == c.setup+"-pki" {
			to = authorities
			maps.DeleteFunc(s.Data, func(key string, _ []byte) bool { return strings.HasPrefix(key, "sa.") })
		}
		for key, content := range s.Data {
			to[s.Name+"/"+key] = content
		}
	}
	for _, m := range c.list(t.Context(), t, "configmaps", "--namespace", c.namespace) {
		data, _, err := unstructured.NestedStringMap(m.Object, "data")
		require.NoError(t, err)
		for key, content := range data {
			readable[m.GetName()+"/"+key] = []byte(content)
		}
	}
	return authorities, readable
}

// applied compares manifests with the cluster by kubectl diff, and requires that no pod mounts the Secret of the
// authorities, or a whole Secret.
func (c *cluster) applied(t *testing.T, manifests string) {
	t.Helper()
	for _, args := range [][]string{
		{"apply", "--dry-run=server", "--validate=strict"},
		{"diff"}, // exits with 1 if anything differs, and does not print Secrets
	} {
		compare := c.kubectl(append(args, "--server-side", "--field-manager=kcpctl", "--filename", "-")...)
		compare.stdin = manifests
		r := compare.run(t.Context(), t)
		require.Zero(t, r.code, "%s\n%s", r.line, r.stderr)
		if args[0] == "diff" {
			require.Empty(t, r.stdout)
		}
	}
	for _, pod := range c.list(t.Context(), t, "pods", "--namespace", c.namespace) {
		require.NotContains(t, fmt.Sprint(pod.Object["spec"]), c.setup+"-pki")
		volumes, _, err := unstructured.NestedSlice(pod.Object, "spec", "volumes")
		require.NoError(t, err)
		for _, v := range volumes {
			if secret, _, _ := unstructured.NestedMap(v.(map[string]any), "secret"); secret != nil {
				require.NotEmpty(t, secret["items"], "Pod/%s mounts a whole Secret: %v", pod.GetName(), v)
			}
		}
	}
}

func (c *cluster) left(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var out []string
	for _, o := range append(c.objects(ctx, t), c.list(ctx, t, "namespaces", "--field-selector=metadata.name="+c.namespace)...) {
		out = append(out, o.GetKind()+"/"+o.GetName())
	}
	for _, v := range c.list(ctx, t, "persistentvolumes") {
		if ns, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "namespace"); ns == c.namespace {
			out = append(out, "PersistentVolume/"+v.GetName())
		}
	}
	files, err := filepath.Glob(filepath.Join(c.home, "kcpctl", "*", c.setup+"*"))
	require.NoError(t, err)
	return append(out, files...)
}

// makeNamespace creates the namespace of the setup.
func (c *cluster) makeNamespace(t *testing.T) {
	t.Helper()
	c.kubectl("create", "namespace", c.namespace).run(t.Context(), t).ok(t)
}

// remove deletes the namespace if it exists, and does not wait.
func (c *cluster) remove(t *testing.T) {
	t.Helper()
	c.kubectl("delete", "namespace", c.namespace, "--ignore-not-found", "--wait=false").run(context.Background(), t).ok(t)
}

// apply applies an object in the namespace of the setup with a field manager other than kcpctl.
func (c *cluster) apply(t *testing.T, manager string, o map[string]any) {
	t.Helper()
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	apply := c.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager", manager, "--namespace", c.namespace, "--filename", "-")
	apply.stdin = string(raw)
	apply.run(t.Context(), t).ok(t)
}

// object returns an object for apply, without its spec.
func object(apiVersion, kind, name string) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
}
