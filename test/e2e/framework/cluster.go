package framework

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

// Cluster runs a setup on the cluster of E2E_KUBECONFIG, in a namespace with the name of the setup.
type Cluster struct {
	Setup, Namespace, Kubeconfig, Home string
}

func NewCluster(t *testing.T, example string) *Setup {
	t.Helper()
	name := NewName()
	return NewClusterNamed(t, example, name, name)
}

// NewClusterNamed is NewCluster for a setup with a name that need not be unique: its namespace is.
func NewClusterNamed(t *testing.T, example, name, namespace string) *Setup {
	t.Helper()
	Given(t, "E2E_KCPCTL")
	c := &Cluster{Setup: name, Namespace: namespace, Kubeconfig: Given(t, "E2E_KUBECONFIG"), Home: t.TempDir()}
	t.Cleanup(func() { c.remove(t) }) // after kcpctl has removed the setup, if it can
	return NewSetup(t, example, c.Setup, c.Home, c, "KUBECONFIG="+c.Kubeconfig)
}

func (c *Cluster) Flags(command string) []string {
	flags := []string{"--namespace", c.Namespace}
	if command == "kubeconfig" {
		flags = append(flags, "--port-forward")
	}
	return flags
}

// Kubectl returns a kubectl command for the cluster, as its administrator.
func (c *Cluster) Kubectl(args ...string) Command {
	return Command{Name: "kubectl", Args: append([]string{"--kubeconfig", c.Kubeconfig}, args...)}
}

// List returns the objects of some resources. A resource that no longer exists is not an error. Neither is an API
// server that does not answer for a moment.
func (c *Cluster) List(ctx context.Context, t *testing.T, args ...string) (all []unstructured.Unstructured) {
	t.Helper()
	Eventually(ctx, t, func() (err error) {
		all, err = c.TryList(ctx, t, args...)
		return err
	})
	return all
}

func (c *Cluster) TryList(ctx context.Context, t *testing.T, args ...string) ([]unstructured.Unstructured, error) {
	t.Helper()
	var all struct{ Items []unstructured.Unstructured }
	r := c.Kubectl(append([]string{"get", "--output", "json", "--show-managed-fields", "--ignore-not-found"}, args...)...).Run(ctx, t)
	if r.Code != 0 {
		return nil, fmt.Errorf("%s: %s", r.Line, r.Stderr)
	}
	if r.Stdout != "" {
		require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all))
	}
	return all.Items, nil
}

// objects returns all objects in the namespace, except events and the objects that Kubernetes itself creates.
func (c *Cluster) objects(ctx context.Context, t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	Eventually(ctx, t, func() (err error) { // a resource may be removed in between
		r := c.Kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").Run(ctx, t)
		if r.Code != 0 {
			return fmt.Errorf("%s: %s", r.Line, r.Stderr)
		}
		resources := slices.DeleteFunc(strings.Fields(r.Stdout), func(r string) bool {
			return strings.HasPrefix(r, "events") || r == "endpoints"
		})
		all, err = c.TryList(ctx, t, strings.Join(resources, ","), "--namespace", c.Namespace)
		return err
	})
	return slices.DeleteFunc(all, func(o unstructured.Unstructured) bool {
		name := o.GetKind() + "/" + o.GetName()
		return name == "ConfigMap/kube-root-ca.crt" || name == "ServiceAccount/default"
	})
}

// Written returns checksums of all objects in the namespace, without their status: the status changes when an old pod
// ends, long after the last write.
func (c *Cluster) Written(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range append(c.objects(t.Context(), t), c.List(t.Context(), t, "namespaces", "--field-selector=metadata.name="+c.Namespace)...) {
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

func (c *Cluster) Running(t *testing.T) map[string]instance {
	t.Helper()
	out := map[string]instance{}
	for _, pod := range c.List(t.Context(), t, "pods", "--namespace", c.Namespace) {
		if pod.GetDeletionTimestamp() != nil || len(pod.GetOwnerReferences()) == 0 {
			continue
		}
		workload := strings.TrimSuffix(pod.GetOwnerReferences()[0].Name, "-"+pod.GetLabels()["pod-template-hash"])
		out[workload] = instance{string(pod.GetUID()), func(t *testing.T) {
			c.Kubectl("delete", "pod", pod.GetName(), "--namespace", c.Namespace, "--force", "--grace-period=0").Run(t.Context(), t).OK(t)
		}}
	}
	return out
}

func (c *Cluster) Keys(t *testing.T) (authorities, readable map[string][]byte) {
	t.Helper()
	authorities, readable = map[string][]byte{}, map[string][]byte{}
	r := c.Kubectl("get", "secrets", "--output", "json", "--namespace", c.Namespace).Run(t.Context(), t).OK(t)
	var secrets corev1.SecretList
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &secrets))
	for _, s := range secrets.Items {
		to := readable
		if s.Name == c.Setup+"-pki" {
			to = authorities
			maps.DeleteFunc(s.Data, func(key string, _ []byte) bool { return strings.HasPrefix(key, "sa.") })
		}
		for key, content := range s.Data {
			to[s.Name+"/"+key] = content
		}
	}
	for _, m := range c.List(t.Context(), t, "configmaps", "--namespace", c.Namespace) {
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
func (c *Cluster) applied(t *testing.T, manifests string) {
	t.Helper()
	for _, args := range [][]string{
		{"apply", "--dry-run=server", "--validate=strict"},
		{"diff"}, // exits with 1 if anything differs, and does not print Secrets
	} {
		compare := c.Kubectl(append(args, "--server-side", "--field-manager=kcpctl", "--filename", "-")...)
		compare.Stdin = manifests
		r := compare.Run(t.Context(), t)
		require.Zero(t, r.Code, "%s\n%s", r.Line, r.Stderr)
		if args[0] == "diff" {
			require.Empty(t, r.Stdout)
		}
	}
	for _, pod := range c.List(t.Context(), t, "pods", "--namespace", c.Namespace) {
		require.NotContains(t, fmt.Sprint(pod.Object["spec"]), c.Setup+"-pki")
		volumes, _, err := unstructured.NestedSlice(pod.Object, "spec", "volumes")
		require.NoError(t, err)
		for _, v := range volumes {
			if secret, _, _ := unstructured.NestedMap(v.(map[string]any), "secret"); secret != nil {
				require.NotEmpty(t, secret["items"], "Pod/%s mounts a whole Secret: %v", pod.GetName(), v)
			}
		}
	}
}

func (c *Cluster) Left(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var out []string
	for _, o := range append(c.objects(ctx, t), c.List(ctx, t, "namespaces", "--field-selector=metadata.name="+c.Namespace)...) {
		out = append(out, o.GetKind()+"/"+o.GetName())
	}
	for _, v := range c.List(ctx, t, "persistentvolumes") {
		if ns, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "namespace"); ns == c.Namespace {
			out = append(out, "PersistentVolume/"+v.GetName())
		}
	}
	files, err := filepath.Glob(filepath.Join(c.Home, "kcpctl", "*", c.Setup+"*"))
	require.NoError(t, err)
	return append(out, files...)
}

// MakeNamespace creates the namespace of the setup.
func (c *Cluster) MakeNamespace(t *testing.T) {
	t.Helper()
	c.Kubectl("create", "namespace", c.Namespace).Run(t.Context(), t).OK(t)
}

// remove deletes the namespace if it exists, and does not wait.
func (c *Cluster) remove(t *testing.T) {
	t.Helper()
	c.Kubectl("delete", "namespace", c.Namespace, "--ignore-not-found", "--wait=false").Run(context.Background(), t).OK(t)
}

// Apply applies an object in the namespace of the setup with a field manager other than kcpctl.
func (c *Cluster) Apply(t *testing.T, manager string, o map[string]any) {
	t.Helper()
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	apply := c.Kubectl("apply", "--server-side", "--force-conflicts", "--field-manager", manager, "--namespace", c.Namespace, "--filename", "-")
	apply.Stdin = string(raw)
	apply.Run(t.Context(), t).OK(t)
}

// Object returns an object for apply, without its spec.
func Object(apiVersion, kind, name string) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
}
