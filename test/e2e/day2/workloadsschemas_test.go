package day2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// schemasSetup has no cluster that the controller can read.
const schemasSetup = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  version: v0.32.3
  external: {hostname: kcp.example.com} # not used on this machine
  rootShard: {virtualWorkspaceURL: "https://root.example.com"}
  shards: [{name: beta, virtualWorkspaceURL: "https://beta.example.com"}]
  kubeconfigs: [{name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}]
  workloads:
    workspace: root:compute
    workspaceType: workload
    apis: [deployments.apps, statefulsets.apps, services, persistentvolumeclaims, ingresses.networking.k8s.io, jobs.batch, cronjobs.batch, widgets.example.com]
    clusters:
    - {name: c1, kubeconfig: %s, syncMode: Pull}
  workspaces:
  - {name: team, type: "root:compute:workload", selector: {name: beta}}
  - {name: shop, type: "root:compute:workload"}
`

var (
	crdGVR    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgetGVR = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

const color = ", color: {type: string}"

// TestLocalWorkloadsSchemas publishes APIs of clusters that the controller cannot read, adds clusters whose schemas
// differ, and changes the published schemas on request.
func TestLocalWorkloadsSchemas(t *testing.T) {
	c1, c2, c3 := newPhysical(t), newPhysical(t), newPhysical(t)
	s := framework.NewLocal(t, "workloads")
	w := &framework.Workloads{T: t, Setup: s}
	c1.Define(w, color)
	c2.Define(w, "")
	c3.Define(w, "")
	s.Text = fmt.Sprintf(schemasSetup, s.Name, c1.kubeconfig)
	s.Write(t, s.Text)
	s.Up(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, id := range []string{"workloads/controller", "cluster/c1", "cluster/c2"} {
				t.Logf("%s: %s", id, s.Command("logs", id, "--tail", "100").Run(context.Background(), t).Stdout)
			}
		}
	})
	admin := filepath.Join(t.TempDir(), "kcp.kubeconfig")
	require.NoError(t, os.WriteFile(admin, []byte(s.Kcpctl(t, "kubeconfig", "admin").OK(t).Stdout), 0o600))
	var err error
	w.Kcp, err = connect.KCP(admin, "")
	require.NoError(t, err)
	require.Empty(t, s.Kcpctl(t, "diff").Stdout)

	for _, o := range []struct{ workspace, name string }{{"root:team", "red"}, {"root:team", "blue"}, {"root:shop", "green"}} {
		w.Apply(o.workspace, widgetGVR, fmt.Sprintf("{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s, namespace: default, "+
			"annotations: {workloads.kcp.dev/spread: Single}}, spec: {size: 1, color: %[1]s}}", o.name))
	}
	w.Eventually(func() error { return c1.widgets(t.Context(), "blue", "green", "red") })

	framework.Step(t, "a cluster without a published field", func(t *testing.T) {
		added := s.Sub(t, "cluster", "add", "c2", "--mode", "pull", "--kubeconfig", c2.kubeconfig).OK(t)
		require.Contains(t, added.Stderr, "it cannot serve widgets.example.com: spec.color: the field is missing")
		require.Contains(t, s.Sub(t, "workloads", "apis").OK(t).Stdout, "spec.color: the field is missing")
		require.NoError(t, hasColor(w, "root:team", "red", "red"), "the published schema is not narrowed by itself")
	})
	framework.Step(t, "the schema becomes narrower on request", func(t *testing.T) {
		annotate(w, "c2", "accept-schema", "widgets.example.com:00000000")
		require.NoError(t, hasColor(w, "root:team", "red", "red"), "that is not what the status has")
		annotate(w, "c2", "accept-schema", offered(t, s, "c2"))
		w.Eventually(func() error { return serves(w, "c2", "widgets.example.com") })
		require.NotContains(t, s.Sub(t, "workloads", "apis").OK(t).Stderr, "accept-schema")
		w.Eventually(func() error { return hasColor(w, "root:team", "red", "") }) // kcp serves the other schema
	})
	framework.Step(t, "the schema becomes wider on request", func(t *testing.T) {
		c2.Define(w, color)
		w.Eventually(func() error {
			out, err := s.Sub(t, "workloads", "apis").Output()
			if err == nil && strings.Count(out, "not published: spec.color: the field is missing") != 2 {
				err = errors.New(out)
			}
			return err
		})
		annotate(w, "c2", "widen-schema", "widgets.example.com")
		w.Apply("root:team", widgetGVR, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: red, namespace: default}, spec: {color: again}}")
		w.Eventually(func() error { return hasColor(w, "root:team", "red", "again") })
	})
	framework.Step(t, "what a removed cluster serves is forgotten", func(t *testing.T) {
		s.Sub(t, "cluster", "remove", "c2", "--yes").OK(t)
		w.NoReports("c2")
	})
	framework.Step(t, "a cluster is added with its schema", func(t *testing.T) {
		added := s.Sub(t, "cluster", "add", "c3", "--kubeconfig", c3.kubeconfig).OK(t)
		require.Contains(t, added.Stderr, "c3 can serve widgets.example.com with a narrower schema.")
		annotate(w, "c3", "accept-schema", offered(t, s, "c3"))
		w.Eventually(func() error { return serves(w, "c3", "widgets.example.com") })
	})
	framework.Step(t, "a cluster is not added twice", func(t *testing.T) {
		again, err := c3.server.Kubeconfig(apiserver.Admin)
		require.NoError(t, err)
		same := s.Sub(t, "cluster", "add", "c4", "--mode", "pull", "--kubeconfig", again)
		require.Equal(t, 1, same.Code, same.Stderr)
		require.Contains(t, same.Stderr, "KCP051: cluster/c4: cluster/c3 is the same cluster")
	})
	framework.Step(t, "a cluster is cordoned", func(t *testing.T) {
		s.Sub(t, "cluster", "cordon", "c3").OK(t)
		require.Regexp(t, `c3 +True +<none> +False \(Cordoned\)`, s.Sub(t, "cluster", "list").OK(t).Stdout)
		s.Sub(t, "cluster", "uncordon", "c3").OK(t)
	})
	for _, c := range s.Check(t, "--wait", "1m").Results {
		require.NotEqual(t, "fail", c.Status, "%+v", c)
		if strings.HasPrefix(c.ID, "KCP15") {
			require.Equal(t, "ok", c.Status, "%+v", c)
		}
	}
}

// Define creates or changes the CustomResourceDefinition of widgets.
func (p *physical) Define(w *framework.Workloads, fields string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(framework.Definition("Widget", "example.com", "size: {type: integer}"+fields)))
	require.NoError(w, err)
	require.NoError(w, u.UnmarshalJSON(raw))
	_, err = p.client.Resource(crdGVR).Apply(w.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "e2e"})
	require.NoError(w, err)
}

// widgets compares the names of the widgets that were synced.
func (p *physical) widgets(ctx context.Context, want ...string) error {
	list, err := p.client.Resource(widgetGVR).List(ctx, ours)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, o := range list.Items {
		found[o.GetName()] = true
	}
	for _, name := range want {
		if !found[name] {
			return fmt.Errorf("widget %s is not in %v", name, found)
		}
	}
	return nil
}

// annotate sets an annotation of a Cluster with a request, and waits until the controller has removed it.
func annotate(w *framework.Workloads, cluster, key, value string) {
	w.Helper()
	w.Apply("root:compute", framework.ClusterGVR, fmt.Sprintf(
		"{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: %s, annotations: {workloads.kcp.dev/%s: %q}}}", cluster, key, value))
	w.Eventually(func() error {
		o, err := w.Get("root:compute", framework.ClusterGVR, "", cluster)
		if err == nil && o.GetAnnotations()["workloads.kcp.dev/"+key] != "" {
			err = fmt.Errorf("%s of %s is not answered", key, cluster)
		}
		return err
	})
}

// offered returns the value that accepts a narrower schema, from the command that workloads apis prints.
func offered(t *testing.T, s *framework.Setup, cluster string) string {
	t.Helper()
	found := regexp.MustCompile(`kubectl annotate clusters.workloads.kcp.dev ` + cluster + ` workloads.kcp.dev/accept-schema=(\S+)`).
		FindStringSubmatch(s.Sub(t, "workloads", "apis").OK(t).Stderr)
	require.Len(t, found, 2)
	return found[1]
}

// hasColor returns an error unless a widget has a color.
func hasColor(w *framework.Workloads, workspace, name, want string) error {
	o, err := w.Get(workspace, widgetGVR, "default", name)
	if err != nil {
		return err
	}
	if c, _, _ := unstructured.NestedString(o.Object, "spec", "color"); c != want {
		return fmt.Errorf("the color of %s is %q, not %q", name, c, want)
	}
	return nil
}

// serves fails unless a cluster can serve an API.
func serves(w *framework.Workloads, cluster, api string) error {
	o, err := w.Get("root:compute", framework.ClusterGVR, "", cluster)
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "apis")
	for _, a := range all {
		m := a.(map[string]any)
		if fmt.Sprint(m["resource"], ".", m["group"]) == api && (m["state"] == "Published" || m["state"] == "Compatible") {
			return nil
		}
	}
	return fmt.Errorf("the APIs of %s: %v", cluster, all)
}
