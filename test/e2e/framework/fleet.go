package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Fleet is a kcp with a controller on the first node of the testbed, and both nodes as physical clusters c1 and c2.
type Fleet struct {
	*Setup
	// Physical are the nodes by the name of the Cluster.
	Physical map[string]*Cluster
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

// Definition returns the CustomResourceDefinition of a kind, with the fields of its spec.
func Definition(kind, group, fields string) string {
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

// RegionField is a field of the kind Site.
const RegionField = `, region: {type: string}`

const (
	// RootTeam is a workspace on the shard beta, RootOther is one on alpha.
	RootTeam, RootOther = "root:team", "root:other"
	rootCompute         = "root:compute"
)

// The first node ports of setups that choose theirs. The API server chooses ports above 30085 itself, as long as there
// are any.
const (
	fleetPort      = 30000
	zonesPort      = 30010
	AgentZonesPort = 30020
)

// NewFleet creates the setup, and gives its images to the nodes.
func NewFleet(t *testing.T) *Fleet {
	t.Helper()
	testbed := os.Getenv("E2E_TESTBED")
	if testbed == "" {
		t.Skip("E2E_TESTBED is not set: only nodes of the testbed have the images of workloads")
	}
	f := &Fleet{files: map[string]string{}, dir: t.TempDir()}
	t.Cleanup(func() { f.sweep(t) }) // after the setup is gone: its syncers would create the namespaces again
	f.Setup = NewCluster(t, "minimal")
	s := f.Setup
	home := s.Runtime.(*Cluster)
	s.Runtime = &Exposed{home}
	f.Physical = map[string]*Cluster{
		"c1": home, "c2": {Setup: s.Name, Namespace: s.Name, Kubeconfig: Given(t, "E2E_KUBECONFIG_B"), Home: home.Home},
	}
	for name, node := range map[string]string{"c1": "a", "c2": "b"} {
		Command{Name: testbed, Args: []string{"workload-images", "--node", node, Given(t, "E2E_KCPCTL")}}.Run(t.Context(), t).OK(t)
		f.Define(t, name, RegionField)
	}
	f.Text = fmt.Sprintf(fleetSetup, s.Name, home.Kubeconfig, f.Physical["c2"].Kubeconfig, home.Address(t),
		fleetPort, fleetPort+1, fleetPort+2, fleetPort+3)
	f.Write(t, f.Text)
	return f
}

// sweep removes what a test that has failed leaves on the nodes.
func (f *Fleet) sweep(t *testing.T) {
	t.Helper()
	for name := range f.Physical {
		f.On(name, "delete", "crd", f.sites(), "--ignore-not-found", "--wait=false").Run(context.Background(), t).OK(t)
		if f.id != "" {
			f.On(name, "delete", "namespaces", "--selector", api.LabelSetup+"="+f.id, "--wait=false").Run(context.Background(), t).OK(t)
		}
	}
}

// sites is the resource of the kind Site, which has the same name in other setups.
func (f *Fleet) sites() string { return "sites." + f.Name + ".example.com" }

// Define creates or changes the kind Site on a node.
func (f *Fleet) Define(t *testing.T, cluster, field string) {
	t.Helper()
	apply := f.On(cluster, "apply", "--filename", "-")
	apply.Stdin = Definition("Site", f.Name+".example.com", "owner: {type: string}"+field)
	apply.Run(t.Context(), t).OK(t)
}

// On returns a kubectl command for a node, as its administrator.
func (f *Fleet) On(cluster string, args ...string) Command {
	return f.Physical[cluster].Kubectl(args...)
}

// User returns a kubectl command for a workspace.
func (f *Fleet) User(t *testing.T, workspace string, args ...string) Command {
	t.Helper()
	if f.files[workspace] == "" {
		file := filepath.Join(f.dir, strings.ReplaceAll(workspace, ":", "-")+".kubeconfig")
		f.Kcpctl(t, "kubeconfig", "--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace, "--output", file).OK(t)
		f.files[workspace] = file
	}
	return Command{Name: "kubectl", Args: append([]string{"--kubeconfig", f.files[workspace]}, args...)}
}

// Apply applies objects in a workspace, as a user who does not want to lose items of lists.
func (f *Fleet) Apply(t *testing.T, workspace, objects string) {
	t.Helper()
	apply := f.User(t, workspace, "apply", "--server-side", "--field-manager", "e2e", "--filename", "-")
	apply.Stdin = objects
	apply.Run(t.Context(), t).OK(t)
}

// Output returns what a command has printed, or its failure as an error: eventually tries again.
func (r Result) Output() (string, error) {
	if r.Code != 0 {
		return "", fmt.Errorf("%s: exit code %d: %s", r.Line, r.Code, r.Stderr)
	}
	return r.Stdout, nil
}

// Decode reads the JSON that a command has printed.
func (r Result) Decode(into any) error {
	out, err := r.Output()
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// read returns a field of an object in a workspace.
func (f *Fleet) read(t *testing.T, workspace, object, path string) string {
	t.Helper()
	out, err := f.tryRead(t, workspace, object, path)
	require.NoError(t, err)
	return out
}

func (f *Fleet) tryRead(t *testing.T, workspace, object, path string) (string, error) {
	t.Helper()
	return f.User(t, workspace, "get", object, "--ignore-not-found", "--output", "jsonpath={"+path+"}").Run(t.Context(), t).Output()
}

// becomes waits until a field of an object in a workspace has a value.
func (f *Fleet) becomes(t *testing.T, workspace, object, path, want string) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		got, err := f.tryRead(t, workspace, object, path)
		if err == nil && got != want {
			err = fmt.Errorf("%s in %s: %s is %q, not %q", object, workspace, path, got, want)
		}
		return err
	})
}

// Namespaces returns the namespaces of a workspace on a node, or those of all workspaces.
func (f *Fleet) Namespaces(t *testing.T, cluster, workspace string) []string {
	t.Helper()
	all, err := f.TryNamespaces(t, cluster, workspace)
	require.NoError(t, err)
	return all
}

func (f *Fleet) TryNamespaces(t *testing.T, cluster, workspace string) ([]string, error) {
	t.Helper()
	selector := api.LabelSetup + "=" + f.id
	if workspace != "" {
		id, err := f.tryRead(t, workspace, "namespace/default", `.metadata.annotations.kcp\.io/cluster`)
		if err != nil {
			return nil, err
		}
		selector += "," + api.LabelWorkspace + "=" + id
	}
	get := f.On(cluster, "get", "namespaces", "--selector", selector, "--output", "jsonpath={.items[*].metadata.name}")
	out, err := get.Run(t.Context(), t).Output()
	return strings.Fields(out), err
}

// tryPods returns the pods of a workspace on a node that are not being deleted.
func (f *Fleet) tryPods(t *testing.T, cluster, workspace, selector string) ([]corev1.Pod, error) {
	t.Helper()
	var all []corev1.Pod
	namespaces, err := f.TryNamespaces(t, cluster, workspace)
	if err != nil {
		return nil, err
	}
	for _, ns := range namespaces {
		var list corev1.PodList
		get := f.On(cluster, "get", "pods", "--namespace", ns, "--selector", selector, "--output", "json")
		if err := get.Run(t.Context(), t).Decode(&list); err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
	}
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// Pods returns what the first answer says. It tries again only if there is none.
func (f *Fleet) Pods(t *testing.T, cluster, workspace, selector string) (all []corev1.Pod) {
	t.Helper()
	Eventually(t.Context(), t, func() (err error) { all, err = f.tryPods(t, cluster, workspace, selector); return err })
	return all
}

// tryCounts returns how many pods of a workspace each of the two clusters runs.
func (f *Fleet) tryCounts(t *testing.T, workspace, selector string) (c1, c2 int, err error) {
	t.Helper()
	first, errFirst := f.tryPods(t, "c1", workspace, selector)
	second, errSecond := f.tryPods(t, "c2", workspace, selector)
	return len(first), len(second), errors.Join(errFirst, errSecond)
}

// spread waits until pods of a workspace run on each cluster in these numbers.
func (f *Fleet) spread(t *testing.T, workspace, selector string, c1, c2 int) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		n1, n2, err := f.tryCounts(t, workspace, selector)
		if err == nil && (n1 != c1 || n2 != c2) {
			err = fmt.Errorf("%s: %d pods run on c1 and %d on c2, not %d and %d", selector, n1, n2, c1, c2)
		}
		return err
	})
}

// halves waits until one cluster runs a half of some pods, rounded down, and the other one the rest.
func (f *Fleet) halves(t *testing.T, workspace, selector string, all int) (c1, c2 int) {
	t.Helper()
	Eventually(t.Context(), t, func() (err error) {
		c1, c2, err = f.tryCounts(t, workspace, selector)
		if err == nil && (c1+c2 != all || min(c1, c2) != all/2) {
			err = fmt.Errorf("%s: %d pods run on c1 and %d on c2, of %d", selector, c1, c2, all)
		}
		return err
	})
	return c1, c2
}

// Answer is what the image web answers.
type Answer struct{ Content, Release, Node, Namespace, Secret string }

// AllAnswer waits until all pods of a workload give the same answer. There is at least one.
func (f *Fleet) AllAnswer(t *testing.T, cluster, workspace, selector string, want Answer) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		all, err := f.tryPods(t, cluster, workspace, selector)
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("no pod of %s runs on %s", selector, cluster)
		}
		for _, p := range all {
			got, errAsk := ask(t.Context(), p)
			if errAsk == nil && got != want {
				errAsk = fmt.Errorf("answers %+v, not %+v", got, want)
			}
			if errAsk != nil {
				err = errors.Join(err, fmt.Errorf("%s on %s: %w", p.Name, cluster, errAsk))
			}
		}
		return err
	})
}

// ask asks a pod.
func ask(ctx context.Context, p corev1.Pod) (a Answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Status.PodIP+":8080/", nil)
	if err != nil {
		return a, err
	}
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&a)
	return a, err
}

// condition waits until a condition of a Cluster has a status.
func (f *Fleet) condition(t *testing.T, cluster, condition, status string) {
	t.Helper()
	f.becomes(t, rootCompute, "cluster/"+cluster, `.status.conditions[?(@.type=="`+condition+`")].status`, status)
}

// memory logs how much memory the pods of a component have. It proves nothing, so it does not fail: the kubelet measures
// a new pod after a while.
func (f *Fleet) memory(t *testing.T, cluster, namespace, prefix string) {
	t.Helper()
	node := f.On(cluster, "get", "nodes", "--output", "jsonpath={.items[0].metadata.name}").Run(t.Context(), t).Stdout
	var summary struct {
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []struct {
				Memory struct{ RSSBytes, WorkingSetBytes uint64 }
			}
		}
	}
	get := f.On(cluster, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/stats/summary")
	if err := get.Run(t.Context(), t).Decode(&summary); err != nil {
		t.Log(err)
	}
	for _, p := range summary.Pods {
		if p.PodRef.Namespace == namespace && strings.HasPrefix(p.PodRef.Name, prefix) && len(p.Containers) > 0 {
			m := p.Containers[0].Memory
			t.Logf("memory of %s: %d MiB resident, %d MiB working set", p.PodRef.Name, m.RSSBytes>>20, m.WorkingSetBytes>>20)
		}
	}
}
