//go:build e2e && long && day2

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
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
// differ, and changes the published schemas with kcpctl.
func TestLocalWorkloadsSchemas(t *testing.T) {
	c1, c2, c3 := newPhysical(t), newPhysical(t), newPhysical(t)
	s := newLocal(t, "workloads")
	w := &workloads{T: t, setup: s}
	c1.define(w, color)
	c2.define(w, "")
	c3.define(w, "")
	s.text = fmt.Sprintf(schemasSetup, s.name, c1.kubeconfig)
	s.write(t, s.text)
	s.up(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, id := range []string{"workloads/controller", "cluster/c1", "cluster/c2"} {
				t.Logf("%s: %s", id, s.command("logs", id, "--tail", "100").run(context.Background(), t).stdout)
			}
		}
	})
	admin := filepath.Join(t.TempDir(), "kcp.kubeconfig")
	require.NoError(t, os.WriteFile(admin, []byte(s.kcpctl(t, "kubeconfig", "admin").ok(t).stdout), 0o600))
	var err error
	w.kcp, err = connect.KCP(admin, "")
	require.NoError(t, err)
	require.Empty(t, s.kcpctl(t, "diff").stdout)

	for _, o := range []struct{ workspace, name string }{{"root:team", "red"}, {"root:team", "blue"}, {"root:shop", "green"}} {
		w.apply(o.workspace, widgetGVR, fmt.Sprintf("{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s, namespace: default, "+
			"annotations: {workloads.kcp.dev/spread: Single}}, spec: {size: 1, color: %[1]s}}", o.name))
	}
	w.eventually(func() error { return c1.widgets(t.Context(), "blue", "green", "red") })

	step(t, "a cluster without a published field", func(t *testing.T) {
		added := s.sub(t, "cluster", "add", "c2", "--mode", "pull", "--kubeconfig", c2.kubeconfig).ok(t)
		require.Contains(t, added.stderr, "it cannot serve widgets.example.com: spec.color: the field is missing")
		require.Contains(t, s.sub(t, "workloads", "apis").ok(t).stdout, "spec.color: the field is missing")
		require.Regexp(t, `widgets.example.com +c2 +--narrow c2 +spec.color +the field is missing`, s.sub(t, "workloads", "negotiate").ok(t).stdout)
		require.NoError(t, w.hasColor("root:team", "red", "red"), "the published schema is not narrowed by itself")
	})
	step(t, "the schema becomes narrower on request", func(t *testing.T) {
		refused := s.sub(t, "workloads", "negotiate", "--narrow", "c2")
		require.Equal(t, 2, refused.code, refused.stderr)
		require.Contains(t, refused.stderr, "The fields of 3 objects in 2 workspaces are dropped at the next write, or it is refused.")
		require.NoError(t, w.hasColor("root:team", "red", "red"))
		narrowed := s.sub(t, "workloads", "negotiate", "--narrow", "c2", "--yes").ok(t)
		require.Regexp(t, `widgets.example.com +spec.color +the field is missing +3 +root:team \(2\), root:shop \(1\)`, narrowed.stdout)
		require.Contains(t, narrowed.stderr, `the published schema of widgets.example.com permits cluster "c2" to serve it.`)
		w.eventually(func() error { return w.serves("c2", "widgets.example.com") })
		require.Contains(t, s.sub(t, "workloads", "negotiate", "--narrow", "c2", "--yes").ok(t).stderr, "nothing changes")
		w.eventually(func() error { return w.hasColor("root:team", "red", "") }) // kcp serves the other schema
	})
	step(t, "the schema becomes wider on request", func(t *testing.T) {
		refused := s.sub(t, "workloads", "negotiate", "--widen", "--yes")
		require.Contains(t, refused.stderr, "nothing changes: the published schemas have all fields that the clusters have in common")
		c2.define(w, color)
		w.eventually(func() error {
			r := s.sub(t, "workloads", "negotiate", "--widen", "--yes")
			if r.code != 0 || !strings.Contains(r.stdout, "spec.color") {
				return fmt.Errorf("%s%s", r.stdout, r.stderr)
			}
			return nil
		})
		w.apply("root:team", widgetGVR, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: red, namespace: default}, spec: {color: again}}")
		w.eventually(func() error { return w.hasColor("root:team", "red", "again") })
	})
	step(t, "what a removed cluster serves is forgotten", func(t *testing.T) {
		s.sub(t, "cluster", "remove", "c2", "--yes").ok(t)
		w.noReports("c2")
	})
	step(t, "a cluster is added with its schema", func(t *testing.T) {
		added := s.sub(t, "cluster", "add", "c3", "--kubeconfig", c3.kubeconfig, "--accept-schema", "--yes").ok(t)
		require.Regexp(t, `widgets.example.com +spec.color +the field is missing +[0-3] +`, added.stderr)
		require.Contains(t, added.stderr, `the published schema of widgets.example.com permits cluster "c3" to serve it.`)
		w.eventually(func() error { return w.serves("c3", "widgets.example.com") })
	})
	step(t, "a cluster is not added twice", func(t *testing.T) {
		again, err := c3.server.Kubeconfig(apiserver.Admin)
		require.NoError(t, err)
		same := s.sub(t, "cluster", "add", "c4", "--mode", "pull", "--kubeconfig", again)
		require.Equal(t, 1, same.code, same.stderr)
		require.Contains(t, same.stderr, "KCP051: cluster/c4: cluster/c3 is the same cluster")
	})
	step(t, "a cluster is cordoned", func(t *testing.T) {
		s.sub(t, "cluster", "cordon", "c3").ok(t)
		require.Regexp(t, `c3 +True +<none> +False \(Cordoned\)`, s.sub(t, "cluster", "list").ok(t).stdout)
		s.sub(t, "cluster", "uncordon", "c3").ok(t)
	})
	for _, c := range s.check(t, "--wait", "1m").Results {
		require.NotEqual(t, "fail", c.Status, "%+v", c)
		if strings.HasPrefix(c.ID, "KCP15") {
			require.Equal(t, "ok", c.Status, "%+v", c)
		}
	}
}

// define creates or changes the CustomResourceDefinition of widgets.
func (p *physical) define(w *workloads, fields string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(definition("Widget", "example.com", "size: {type: integer}"+fields)))
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

// hasColor returns an error unless a widget has a color.
func (w *workloads) hasColor(workspace, name, want string) error {
	o, err := w.get(workspace, widgetGVR, "default", name)
	if err != nil {
		return err
	}
	if c, _, _ := unstructured.NestedString(o.Object, "spec", "color"); c != want {
		return fmt.Errorf("the color of %s is %q, not %q", name, c, want)
	}
	return nil
}

// serves fails unless a cluster can serve an API.
func (w *workloads) serves(cluster, api string) error {
	o, err := w.get("root:compute", clusterGVR, "", cluster)
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
