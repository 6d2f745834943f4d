//go:build e2e && long

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// TestClusterWorkloads runs what users create in workspaces on two physical clusters. The controller syncs one, and a
// syncer in it the other.
func TestClusterWorkloads(t *testing.T) {
	f := newFleet(t)
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"one up", f.start},
		{"the syncer runs in its cluster", f.pulls},
		{"the APIs are in a workspace on another shard", f.hasAPIs},
		{"a Deployment runs on both clusters", f.runs},
		{"the certificate of the syncer is renewed", f.renews},
		{"it scales", f.scales},
		{"a new image replaces pods without a gap", f.rollsOut},
		{"a change that kcp would lose is refused", f.guarded},
		{"another workspace has the same names", f.sameNames},
		{"other kinds", f.kinds},
		{"annotations choose clusters", f.chooses},
		{"pods do not get the network of a node", f.confines},
		{"a cluster is drained", f.drains},
		{"diff is empty", func(t *testing.T) { require.Empty(t, f.kcpctl(t, "diff").ok(t).stdout) }},
		{"deleted objects leave", func(t *testing.T) { f.clears(t, rootTeam, rootOther) }},
		{"a cluster is removed", f.leavesCluster},
		{"down leaves nothing", f.leavesNothing},
	} {
		step(t, part.name, part.do)
	}
}

// start runs up, and logs how long the registration of each cluster takes.
func (f *fleet) start(t *testing.T) {
	began := map[string]time.Time{}
	event := regexp.MustCompile(`"name":"(cluster/[^"]+)","status":"(running|done)"`)
	r := f.command("up", "--output", "json").watch(t, func(_ *exec.Cmd, line []byte) {
		switch m := event.FindStringSubmatch(string(line)); {
		case m == nil:
		case m[2] == "running":
			if began[m[1]].IsZero() {
				began[m[1]] = time.Now()
			}
		case !began[m[1]].IsZero():
			t.Logf("registration of %s: %s", m[1], time.Since(began[m[1]]).Round(10*time.Millisecond))
		}
	})
	r.ok(t)
	f.id = f.read(t, rootCompute, "cluster/c1", `.metadata.annotations.kcp\.io/cluster`)
	require.NotEmpty(t, f.id)
}

func (f *fleet) hasAPIs(t *testing.T) {
	var w workspace
	require.NoError(t, json.Unmarshal([]byte(f.user(t, "root", "get", "workspace", "team", "--output", "json").run(t.Context(), t).ok(t).stdout), &w))
	require.Equal(t, "beta", w.Metadata.Annotations["core.kcp.io/shard"])
	for _, cluster := range []string{"c1", "c2"} {
		f.condition(t, cluster, "Ready", "True")
		f.condition(t, cluster, "APIsCompatible", "True")
	}
	eventually(t.Context(), t, func() error {
		served, err := f.user(t, rootTeam, "api-resources", "--output", "name").run(t.Context(), t).output()
		for _, resource := range []string{"deployments.apps", "services", "ingresses.networking.k8s.io", f.sites()} {
			if err == nil && !slices.Contains(strings.Fields(served), resource) {
				err = fmt.Errorf("%s is not served: %s", resource, served)
			}
		}
		return err
	})
}

func (f *fleet) runs(t *testing.T) {
	began := time.Now()
	f.apply(t, rootTeam, fmt.Sprintf(webObjects, "team", 5))
	eventually(t.Context(), t, func() error {
		for _, cluster := range []string{"c1", "c2"} {
			all, err := f.tryPods(t, cluster, rootTeam, "app=web")
			if err != nil {
				return err
			}
			for _, p := range all {
				if p.Status.Phase == "Running" {
					return nil
				}
			}
		}
		return fmt.Errorf("no pod runs")
	})
	t.Logf("a pod runs %s after the Deployment was created", time.Since(began).Round(100*time.Millisecond))
	f.user(t, rootTeam, "rollout", "status", "deployment/web", "--timeout=3m").run(t.Context(), t).ok(t)
	t.Logf("5 pods are ready %s after", time.Since(began).Round(100*time.Millisecond))
	eventually(t.Context(), t, func() error {
		row, err := f.user(t, rootTeam, "get", "deployment", "web", "--no-headers").run(t.Context(), t).output()
		if err == nil && !regexp.MustCompile(`^web +5/5 `).MatchString(row) {
			err = errors.New(row)
		}
		return err
	})
	c1, c2 := f.halves(t, rootTeam, "app=web", 5)
	f.placed(t, "web", map[string][2]int64{"c1": {int64(c1), int64(c1)}, "c2": {int64(c2), int64(c2)}})
	f.serves(t, rootTeam, "team", "v1")
	for _, cluster := range []string{"c1", "c2"} {
		for _, object := range []string{"service/web", "ingress/web"} {
			get := f.on(cluster, "get", object, "--namespace", f.namespaces(t, cluster, rootTeam)[0])
			eventually(t.Context(), t, func() error { _, err := get.run(t.Context(), t).output(); return err })
		}
	}
	f.memory(t, "c1", f.name, f.name+"-workloads-controller")
}

// placed waits until a Deployment has these replicas and ready replicas by cluster.
func (f *fleet) placed(t *testing.T, deployment string, want map[string][2]int64) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		text, err := f.tryRead(t, rootTeam, "deployment/"+deployment, `.metadata.annotations.workloads\.kcp\.dev/placement`)
		var all api.Placement
		if err == nil {
			err = json.Unmarshal([]byte(text), &all)
		}
		have := map[string][2]int64{}
		for name, p := range all {
			if p.Replicas != nil && p.Ready != nil {
				have[name] = [2]int64{*p.Replicas, *p.Ready}
			}
		}
		if err == nil && (len(all) != len(want) || !maps.Equal(have, want)) {
			err = fmt.Errorf("%s, not %v", text, want)
		}
		return err
	})
}

// serves waits until all pods of the Deployment web answer with what they read, on both nodes.
func (f *fleet) serves(t *testing.T, workspace, content, release string) {
	t.Helper()
	for _, at := range [][2]string{{"c1", "testbed-a"}, {"c2", "testbed-b"}} {
		cluster, node := at[0], at[1]
		want := answer{content, release, node, f.namespaces(t, cluster, workspace)[0], "secret of " + content}
		f.allAnswer(t, cluster, workspace, "app=web", want)
	}
}

func (f *fleet) scales(t *testing.T) {
	f.user(t, rootTeam, "scale", "deployment/web", "--replicas=9").run(t.Context(), t).ok(t)
	f.user(t, rootTeam, "rollout", "status", "deployment/web", "--timeout=3m").run(t.Context(), t).ok(t)
	f.becomes(t, rootTeam, "deployment/web", ".status.readyReplicas", "9")
	f.halves(t, rootTeam, "app=web", 9)
}

// rollsOut changes the image. Meanwhile the clusters always have as many available pods as the Deployment requests.
func (f *fleet) rollsOut(t *testing.T) {
	f.apply(t, rootTeam, strings.ReplaceAll(fmt.Sprintf(webObjects, "team", 9), "web:v1", "web:v2"))
	done := make(chan result, 1)
	rollout := f.user(t, rootTeam, "rollout", "status", "deployment/web", "--timeout=4m")
	go func() { done <- rollout.run(t.Context(), t) }()
	looks := 0
	for {
		available := f.available(t)
		if available < 9 {
			t.Logf("%d pods are available", available)
			time.Sleep(secondLook)
			require.GreaterOrEqual(t, f.available(t), 9, "%d a second before", available)
		}
		looks++
		select {
		case r := <-done:
			r.ok(t)
			t.Logf("%d looks during the rollout", looks)
			f.serves(t, rootTeam, "team", "v2")
			return
		case <-time.After(pause):
		}
	}
}

// secondLook is the time between two looks at a number that is low. It is the sum of what several clusters say, one after
// the other, and a busy node answers a probe too late now and then. A number that is low twice is low.
const secondLook = time.Second

// available returns how many pods of the Deployment web the clusters count as available, together.
func (f *fleet) available(t *testing.T) (all int) {
	t.Helper()
	for _, cluster := range []string{"c1", "c2"} {
		eventually(t.Context(), t, func() error {
			namespaces, err := f.tryNamespaces(t, cluster, rootTeam)
			if err == nil && len(namespaces) != 1 {
				err = fmt.Errorf("%s has the namespaces %v", cluster, namespaces)
			}
			if err != nil {
				return err
			}
			var d appsv1.Deployment
			get := f.on(cluster, "get", "deployment", "web", "--namespace", namespaces[0], "--output", "json")
			if err := get.run(t.Context(), t).decode(&d); err != nil {
				return err
			}
			all += int(d.Status.AvailableReplicas)
			return nil
		})
	}
	return all
}

// guarded changes the Deployment with a patch of which kcp loses items of lists.
func (f *fleet) guarded(t *testing.T) {
	patch := f.user(t, rootTeam, "apply", "--filename", "-")
	patch.stdin = strings.ReplaceAll(fmt.Sprintf(webObjects, "team", 9), "web:v1", "web:v2")
	r := patch.run(t.Context(), t)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "use kubectl apply --server-side")
	require.Equal(t, "8080", f.read(t, rootTeam, "deployment/web", ".spec.template.spec.containers[0].ports[0].containerPort"))
}

// sameNames creates objects of the same names in a workspace on another shard.
func (f *fleet) sameNames(t *testing.T) {
	f.apply(t, rootOther, fmt.Sprintf(webObjects, "other", 2))
	f.user(t, rootOther, "rollout", "status", "deployment/web", "--timeout=3m").run(t.Context(), t).ok(t)
	f.serves(t, rootOther, "other", "v1")
	f.serves(t, rootTeam, "team", "v2")
	for _, cluster := range []string{"c1", "c2"} {
		require.NotEqual(t, f.namespaces(t, cluster, rootTeam), f.namespaces(t, cluster, rootOther))
	}
}

func (f *fleet) kinds(t *testing.T) {
	f.apply(t, rootTeam, otherKinds+"---"+fmt.Sprintf(site, f.name))
	f.becomes(t, rootTeam, "statefulset/db", ".status.readyReplicas", "2")
	counts := map[string][2]int{"c1": {2, 0}, "c2": {0, 2}}[f.atOne(t, "statefulset/db")]
	f.spread(t, rootTeam, "app=db", counts[0], counts[1]) // two clusters would both have a db-0
	f.becomes(t, rootTeam, "statefulset/disk", ".status.readyReplicas", "1")
	f.disk = f.atOne(t, "statefulset/disk")
	f.becomes(t, rootTeam, "daemonset/each", ".status.numberReady", "2")
	f.spread(t, rootTeam, "app=each", 1, 1)
	f.becomes(t, rootTeam, "job/once", ".status.succeeded", "1")
	ran := f.read(t, rootTeam, "job/once", ".status.startTime")
	at := f.atOne(t, f.sites()+"/front")
	f.on(at, "patch", f.sites(), "front", "--namespace", f.namespaces(t, at, rootTeam)[0], "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Open"}}`).
		run(t.Context(), t).ok(t)
	f.becomes(t, rootTeam, "site/front", ".status.phase", "Open")
	require.Equal(t, ran, f.read(t, rootTeam, "job/once", ".status.startTime"), "the Job has run again")
}

// atOne waits until an object of the workspace team is on a node, and requires that it is on no other.
func (f *fleet) atOne(t *testing.T, object string) string {
	t.Helper()
	var at []string
	eventually(t.Context(), t, func() error {
		at = nil
		for _, cluster := range []string{"c1", "c2"} {
			namespaces, err := f.tryNamespaces(t, cluster, rootTeam)
			if err != nil {
				return err
			}
			for _, ns := range namespaces {
				get := f.on(cluster, "get", object, "--namespace", ns, "--ignore-not-found", "--output", "name")
				found, err := get.run(t.Context(), t).output()
				if err != nil {
					return err
				}
				if found != "" {
					at = append(at, cluster)
				}
			}
		}
		if len(at) == 0 {
			return fmt.Errorf("%s is on no cluster", object)
		}
		return nil
	})
	require.Len(t, at, 1, object)
	return at[0]
}

func (f *fleet) chooses(t *testing.T) {
	f.apply(t, rootTeam, fmt.Sprintf(chosen, "selected", "cluster-selector", "region in (us)")+fmt.Sprintf(chosen, "weighted", "weights", "c1=2,c2=1"))
	f.becomes(t, rootTeam, "deployment/selected", ".status.readyReplicas", "3")
	f.apply(t, rootTeam, fmt.Sprintf(chosen, "apart", "anti-affinity", "app=selected"))
	for _, want := range []struct {
		name   string
		c1, c2 int
	}{{"selected", 0, 3}, {"weighted", 2, 1}, {"apart", 3, 0}} {
		f.becomes(t, rootTeam, "deployment/"+want.name, ".status.readyReplicas", "3")
		f.spread(t, rootTeam, "app="+want.name, want.c1, want.c2)
	}
	explained := f.command("explain")
	explained.args = append([]string{"workloads", "explain", "deployment/selected", "--workspace", rootTeam, "--file", f.file}, f.flags("")...)
	require.Regexp(t, `c1 +no .*do not match`, explained.run(t.Context(), t).ok(t).stdout)
	f.user(t, rootTeam, "delete", "deployment", "selected", "weighted", "apart", "--wait=false").run(t.Context(), t).ok(t)
}

// confines creates a Deployment that the Pod Security Standard baseline does not allow.
func (f *fleet) confines(t *testing.T) {
	deployment := strings.Replace(fmt.Sprintf(chosen, "outside", "max-clusters", "1"), "{containers:", "{hostNetwork: true, containers:", 1)
	f.apply(t, rootTeam, deployment)
	failure := `.status.conditions[?(@.type=="ReplicaFailure")].`
	f.becomes(t, rootTeam, "deployment/outside", failure+"status", "True")
	require.Contains(t, f.read(t, rootTeam, "deployment/outside", failure+"message"), `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	f.user(t, rootTeam, "delete", "deployment", "outside", "--wait=false").run(t.Context(), t).ok(t)
}

// drains takes everything from a cluster that may leave it, and gives it back.
func (f *fleet) drains(t *testing.T) {
	f.user(t, rootTeam, "delete", "deployment/web", "statefulset/db", "statefulset/disk", "job/once", "--ignore-not-found").run(t.Context(), t).ok(t)
	f.sub(t, "cluster", "cordon", "c2").ok(t)
	f.condition(t, "c2", "Schedulable", "False")
	f.user(t, rootOther, "scale", "deployment/web", "--replicas=3").run(t.Context(), t).ok(t)
	f.user(t, rootOther, "rollout", "status", "deployment/web", "--timeout=3m").run(t.Context(), t).ok(t)
	f.spread(t, rootOther, "app=web", 2, 1)
	f.sub(t, "cluster", "drain", "c2").ok(t)
	f.spread(t, rootOther, "app=web", 3, 0)
	f.becomes(t, rootCompute, "cluster/c2", `.status.conditions[?(@.type=="Schedulable")].reason`, "Drained")
	f.sub(t, "cluster", "uncordon", "c2").ok(t)
	f.sub(t, "workloads", "rebalance").ok(t)
	eventually(t.Context(), t, func() error {
		back, err := f.tryPods(t, "c2", rootOther, "app=web")
		if err == nil && len(back) == 0 {
			err = fmt.Errorf("no pod is back on c2")
		}
		return err
	})
}

// clears deletes everything that users have created. The volume of a StatefulSet stays, until an administrator of its
// cluster deletes it.
func (f *fleet) clears(t *testing.T, workspaces ...string) {
	for _, workspace := range workspaces {
		f.user(t, workspace, "delete", "deployments,statefulsets,daemonsets,jobs,services,ingresses", "--all").run(t.Context(), t).ok(t)
		f.user(t, workspace, "delete", "configmap/web", "secret/web", "serviceaccount/web").run(t.Context(), t).ok(t)
	}
	f.user(t, rootTeam, "delete", "sites", "--all").run(t.Context(), t).ok(t)
	var kept []string
	if f.disk != "" {
		kept = f.namespaces(t, f.disk, rootTeam)
	}
	f.keeps(t, kept)
	if f.disk != "" {
		f.on(f.disk, "delete", "pvc", "data-disk-0", "--namespace", kept[0]).run(t.Context(), t).ok(t)
		f.keeps(t, nil)
	}
}

// keeps waits until the clusters have only these namespaces of workspaces.
func (f *fleet) keeps(t *testing.T, namespaces []string) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		first, err1 := f.tryNamespaces(t, "c1", "")
		second, err2 := f.tryNamespaces(t, "c2", "")
		err := errors.Join(err1, err2)
		if left := append(first, second...); err == nil && !slices.Equal(left, namespaces) {
			err = fmt.Errorf("the clusters have the namespaces %v", left)
		}
		return err
	})
}
