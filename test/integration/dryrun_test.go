package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/cmd"
	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// The API server accepts the manifests of every example without a field that it does not know, and kcpctl up plans them
// with all its checks, without a write.
func TestADryRunOfExamplesWritesNothing(t *testing.T) {
	apiserver.Need(t)
	furnish(t)
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			e := newExample(t, name)
			t.Setenv("KUBECONFIG", e.kubeconfig)
			before := e.written(t)
			e.accepted(t, e.kcpctl(t, "render", "--pki-dir", t.TempDir()))
			out := e.kcpctl(t, "up", "--dry-run=server", "--ignore-checks=KCP018")
			require.Regexp(t, `(?m)^[1-9][0-9]* create`, out)
			require.Equal(t, before, e.written(t), "a dry run writes nothing")
		})
	}
}

// example is a setup from an example, in namespaces that exist.
type example struct {
	name, file, kubeconfig string
	namespaces             []string
	client                 dynamic.Interface
}

// exampleCluster matches an entry of spec.clusters in an example, and exampleName the name of its setup.
var (
	exampleCluster = regexp.MustCompile(`(?m)^(  - name: (\S+)( .*)?\n)(?:    context: \S+\n)?    namespace: \S+\n`)
	exampleName    = regexp.MustCompile(`(?m)^  name: \S+`)
)

// newExample writes the setup file, and creates the namespaces with the Secrets that external-etcd.yaml and
// vespucci.yaml refer to. Several clusters become namespaces of the same one.
func newExample(t *testing.T, name string) *example {
	t.Helper()
	raw, err := examples.Read(name)
	require.NoError(t, err)
	e := &example{name: server.Unique("dry-" + name), file: filepath.Join(t.TempDir(), "kcp.yaml")}
	e.kubeconfig, e.client = connect(t)
	text := strings.Replace(string(raw), exampleName.FindString(string(raw)), "  name: "+e.name, 1)
	text = exampleCluster.ReplaceAllStringFunc(text, func(entry string) string {
		c := exampleCluster.FindStringSubmatch(entry)
		e.namespaces = append(e.namespaces, e.name+"-"+c[2])
		return fmt.Sprintf("%s    kubeconfig: %s\n    namespace: %s\n", c[1], e.kubeconfig, e.name+"-"+c[2])
	})
	if len(e.namespaces) == 0 {
		e.namespaces = []string{e.name}
	}
	require.NoError(t, os.WriteFile(e.file, []byte(text), 0o600))
	for _, namespace := range e.namespaces {
		create(t, e.client.Resource(kind.Namespace.GVR()), kind.Namespace, namespace, nil)
		for _, secret := range []string{"etcd-client", "api-tls"} {
			create(t, e.client.Resource(kind.Secret.GVR()).Namespace(namespace), kind.Secret, secret, map[string]any{
				"stringData": map[string]any{"ca.crt": "ca", "tls.crt": "certificate", "tls.key": "key"},
			})
		}
	}
	return e
}

// connect returns the kubeconfig of an administrator and a client.
func connect(t *testing.T) (string, dynamic.Interface) {
	t.Helper()
	kubeconfig, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return kubeconfig, client
}

func create(t *testing.T, client dynamic.ResourceInterface, k kind.Kind, name string, fields map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range fields {
		o.Object[key] = value
	}
	o.SetGroupVersionKind(k.GroupVersionKind)
	o.SetName(name)
	_, err := client.Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
}

// furnish creates a node and a storage class, which checks require.
func furnish(t *testing.T) {
	t.Helper()
	_, client := connect(t)
	for _, it := range []struct {
		resource string
		o        string
	}{
		{"storageclasses", `{apiVersion: storage.k8s.io/v1, kind: StorageClass, provisioner: example.com/none,
			metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`},
		{"nodes", `{apiVersion: v1, kind: Node, metadata: {name: node, labels: {kubernetes.io/arch: amd64}},
			status: {nodeInfo: {architecture: amd64}}}`},
	} {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(it.o, "\t", " ")), &o.Object))
		at := client.Resource(o.GroupVersionKind().GroupVersion().WithResource(it.resource))
		apiserver.Remove(t, at, o.GetName())
		_, err := at.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// kcpctl runs a command for the setup, and returns its output.
func (e *example) kcpctl(t *testing.T, args ...string) string {
	t.Helper()
	home := t.TempDir()
	var out, errs bytes.Buffer
	stream := func(b *bytes.Buffer) *ui.Stream {
		return &ui.Stream{Writer: b, Size: func() (int, int) { return 80, 24 }}
	}
	env := &cmd.Env{
		Streams: &ui.Streams{In: strings.NewReader(""), Out: stream(&out), Err: stream(&errs)},
		Now:     time.Now, Program: "kcpctl", Getenv: func(name string) string {
			return map[string]string{"HOME": home, "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}[name]
		},
	}
	args = append(args, "--file", e.file)
	if len(e.namespaces) == 1 { // a setup with several clusters has their namespaces in its file
		args = append(args, "--namespace", e.namespaces[0])
	}
	require.Zero(t, cmd.Main(t.Context(), args, env), &errs)
	return out.String()
}

// written returns the resource version of every object in the namespaces, of the namespaces, and of the objects without
// a namespace that belong to the setup. No controller writes any.
func (e *example) written(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range resources {
		all, err := e.client.Resource(r).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, o := range all.Items {
			if slices.Contains(e.namespaces, o.GetNamespace()) ||
				r == kind.Namespace.GVR() && slices.Contains(e.namespaces, o.GetName()) ||
				o.GetNamespace() == "" && o.GetLabels()[topology.LabelSetup] == e.name {
				out[r.String()+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
			}
		}
	}
	return out
}

// accepted requires that the API server accepts manifests in a dry run, with strict validation: except those of a CRD
// that is among the manifests.
func (e *example) accepted(t *testing.T, manifests string) {
	t.Helper()
	tried := 0
	for _, doc := range strings.Split(strings.TrimPrefix(manifests, "---\n"), "\n---\n") {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &o.Object))
		if o.GetKind() == "PublishedResource" {
			continue
		}
		k, err := kind.Of(o.GroupVersionKind())
		require.NoError(t, err)
		raw, err := o.MarshalJSON()
		require.NoError(t, err)
		var client dynamic.ResourceInterface = e.client.Resource(k.GVR())
		if !k.ClusterScoped {
			client = e.client.Resource(k.GVR()).Namespace(o.GetNamespace())
		}
		_, err = client.Patch(t.Context(), o.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{
			FieldManager: topology.ManagedBy, DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
		})
		require.NoError(t, err, "%s/%s", k.Kind, o.GetName())
		tried++
	}
	require.NotZero(t, tried)
}
