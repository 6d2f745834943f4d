//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// fleet is a kcp with a controller on the first node of the testbed, and both nodes as physical clusters c1 and c2.
type fleet struct {
	*setup
	// physical are the nodes by the name of the Cluster.
	physical map[string]*cluster
	// id is the value of the label workloads.kcp.dev/setup.
	id string
	// disk is the cluster with a volume, if there is one.
	disk string
	// files are kubeconfigs by workspace, in the directory dir.
	files map[string]string
	dir   string
}

// fleetSetup is a kcp of three shards, at node ports that a syncer on the second node reaches. Its own kind Site is a
// CustomResourceDefinition of both nodes, with a name of this setup, because other tests use the same nodes.
const fleetSetup = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %[1]s}
spec:
  external: {hostname: %[4]s, port: %[5]d}
  etcd: {embedded: {ephemeral: true}}
  frontProxies: [{name: main, expose: NodePort}]
  rootShard: {expose: NodePort, url: "https://%[4]s:%[6]d"}
  shards:
  - {name: alpha, expose: NodePort, url: "https://%[4]s:%[7]d"}
  - {name: beta, expose: NodePort, url: "https://%[4]s:%[8]d"}
  kubeconfigs:
  - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
  workloads:
    apis: [deployments.apps, statefulsets.apps, daemonsets.apps, jobs.batch, services, ingresses.networking.k8s.io, sites.%[1]s.example.com]
    image: {repository: kcpctl.dev/testbed/kcpctl, tag: tested}
    clusters:
    - {name: c1, kubeconfig: %[2]s, server: "https://kubernetes.default.svc", labels: {region: eu}}
    - {name: c2, kubeconfig: %[3]s, labels: {region: us}, syncMode: Pull}
  workspaces:
  - {name: team, type: "root:compute:workload", selector: {name: beta}}
  - {name: other, type: "root:compute:workload", selector: {name: alpha}}
`

// definition returns the CustomResourceDefinition of a kind, with the fields of its spec.
func definition(kind, group, fields string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.%[3]s}
spec:
  group: %[3]s
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]ss, singular: %[2]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {%[4]s}}
          status: {type: object, properties: {phase: {type: string}}}
`, kind, strings.ToLower(kind), group, fields)
}

// regionField is a field of the kind Site.
const regionField = `, region: {type: string}`

const (
	// rootTeam is a workspace on the shard beta, rootOther is one on alpha.
	rootTeam, rootOther = "root:team", "root:other"
	rootCompute         = "root:compute"
)

// newFleet creates the setup, and gives its images to the nodes.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	testbed := os.Getenv("E2E_TESTBED")
	if testbed == "" {
		t.Skip("E2E_TESTBED is not set: only nodes of the testbed have the images of workloads")
	}
	f := &fleet{files: map[string]string{}, dir: t.TempDir()}
	t.Cleanup(func() { f.sweep(t) }) // after the setup is gone: its syncers would create the namespaces again
	f.setup = newCluster(t, "minimal")
	s := f.setup
	home := s.runtime.(*cluster)
	s.runtime = &exposed{home}
	f.physical = map[string]*cluster{
		"c1": home, "c2": {setup: s.name, namespace: s.name, kubeconfig: given(t, "E2E_KUBECONFIG_B"), home: home.home},
	}
	for name, node := range map[string]string{"c1": "a", "c2": "b"} {
		command{name: testbed, args: []string{"workload-images", "--node", node, given(t, "E2E_KCPCTL")}}.run(t.Context(), t).ok(t)
		f.define(t, name, regionField)
	}
	port := 30000 + rand.IntN(2700)
	f.text = fmt.Sprintf(fleetSetup, s.name, home.kubeconfig, f.physical["c2"].kubeconfig, home.address(t), port, port+1, port+2, port+3)
	f.write(t, f.text)
	return f
}

// sweep removes what a test that has failed leaves on the nodes.
func (f *fleet) sweep(t *testing.T) {
	t.Helper()
	for name := range f.physical {
		f.on(name, "delete", "crd", f.sites(), "--ignore-not-found", "--wait=false").run(context.Background(), t).ok(t)
		if f.id != "" {
			f.on(name, "delete", "namespaces", "--selector", api.LabelSetup+"="+f.id, "--wait=false").run(context.Background(), t).ok(t)
		}
	}
}

// sites is the resource of the kind Site, which has the same name in other setups.
func (f *fleet) sites() string { return "sites." + f.name + ".example.com" }

// define creates or changes the kind Site on a node.
func (f *fleet) define(t *testing.T, cluster, field string) {
	t.Helper()
	apply := f.on(cluster, "apply", "--filename", "-")
	apply.stdin = definition("Site", f.name+".example.com", "owner: {type: string}"+field)
	apply.run(t.Context(), t).ok(t)
}

// on returns a kubectl command for a node, as its administrator.
func (f *fleet) on(cluster string, args ...string) command {
	return f.physical[cluster].kubectl(args...)
}

// user returns a kubectl command for a workspace.
func (f *fleet) user(t *testing.T, workspace string, args ...string) command {
	t.Helper()
	if f.files[workspace] == "" {
		file := filepath.Join(f.dir, strings.ReplaceAll(workspace, ":", "-")+".kubeconfig")
		f.kcpctl(t, "kubeconfig", "--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace, "--output", file).ok(t)
		f.files[workspace] = file
	}
	return command{name: "kubectl", args: append([]string{"--kubeconfig", f.files[workspace]}, args...)}
}

// apply applies objects in a workspace, as a user who does not want to lose items of lists.
func (f *fleet) apply(t *testing.T, workspace, objects string) {
	t.Helper()
	apply := f.user(t, workspace, "apply", "--server-side", "--field-manager", "e2e", "--filename", "-")
	apply.stdin = objects
	apply.run(t.Context(), t).ok(t)
}

// read returns a field of an object in a workspace.
func (f *fleet) read(t *testing.T, workspace, object, path string) string {
	t.Helper()
	return f.user(t, workspace, "get", object, "--ignore-not-found", "--output", "jsonpath={"+path+"}").run(t.Context(), t).ok(t).stdout
}

// becomes waits until a field of an object in a workspace has a value.
func (f *fleet) becomes(t *testing.T, workspace, object, path, want string) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		if got := f.read(t, workspace, object, path); got != want {
			return fmt.Errorf("%s in %s: %s is %q, not %q", object, workspace, path, got, want)
		}
		return nil
	})
}

// namespaces returns the namespaces of a workspace on a node, or those of all workspaces.
func (f *fleet) namespaces(t *testing.T, cluster, workspace string) []string {
	t.Helper()
	selector := api.LabelSetup + "=" + f.id
	if workspace != "" {
		selector += "," + api.LabelWorkspace + "=" + f.read(t, workspace, "namespace/default", `.metadata.annotations.kcp\.io/cluster`)
	}
	r := f.on(cluster, "get", "namespaces", "--selector", selector, "--output", "jsonpath={.items[*].metadata.name}")
	return strings.Fields(r.run(t.Context(), t).ok(t).stdout)
}

// pods returns the pods of a workspace on a node that are not being deleted.
func (f *fleet) pods(t *testing.T, cluster, workspace, selector string) []corev1.Pod {
	t.Helper()
	var all []corev1.Pod
	for _, ns := range f.namespaces(t, cluster, workspace) {
		var list corev1.PodList
		r := f.on(cluster, "get", "pods", "--namespace", ns, "--selector", selector, "--output", "json").run(t.Context(), t).ok(t)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
		all = append(all, list.Items...)
	}
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// spread requires that pods of a workspace run on each cluster in these numbers.
func (f *fleet) spread(t *testing.T, workspace, selector string, c1, c2 int) {
	t.Helper()
	require.Equal(t, []int{c1, c2}, []int{len(f.pods(t, "c1", workspace, selector)), len(f.pods(t, "c2", workspace, selector))}, selector)
}

// answer is what the image web answers.
type answer struct{ Content, Release, Node, Namespace, Secret string }

// answers asks the pods of a workload.
func (f *fleet) answers(t *testing.T, cluster, workspace, selector string) []answer {
	t.Helper()
	var out []answer
	for _, p := range f.pods(t, cluster, workspace, selector) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Status.PodIP+":8080/", nil)
		require.NoError(t, err)
		response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
		require.NoError(t, err)
		raw, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(t, err)
		var a answer
		require.NoError(t, json.Unmarshal(raw, &a), string(raw))
		out = append(out, a)
	}
	return out
}

// condition waits until a condition of a Cluster has a status.
func (f *fleet) condition(t *testing.T, cluster, condition, status string) {
	t.Helper()
	f.becomes(t, rootCompute, "cluster/"+cluster, `.status.conditions[?(@.type=="`+condition+`")].status`, status)
}

// memory logs how much memory the pods of a component have.
func (f *fleet) memory(t *testing.T, cluster, namespace, prefix string) {
	t.Helper()
	node := f.on(cluster, "get", "nodes", "--output", "jsonpath={.items[0].metadata.name}").run(t.Context(), t).ok(t).stdout
	var summary struct {
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []struct {
				Memory struct{ RSSBytes, WorkingSetBytes uint64 }
			}
		}
	}
	r := f.on(cluster, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/stats/summary").run(t.Context(), t).ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &summary))
	for _, p := range summary.Pods {
		if p.PodRef.Namespace == namespace && strings.HasPrefix(p.PodRef.Name, prefix) {
			m := p.Containers[0].Memory
			t.Logf("memory of %s: %d MiB resident, %d MiB working set", p.PodRef.Name, m.RSSBytes>>20, m.WorkingSetBytes>>20)
		}
	}
}
