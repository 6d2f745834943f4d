package framework

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

// Start runs up, and logs how long the registration of each cluster takes.
func (f *Fleet) Start(t *testing.T) {
	began := map[string]time.Time{}
	event := regexp.MustCompile(`"name":"(cluster/[^"]+)","status":"(running|done)"`)
	r := f.Command("up", "--output", "json").Watch(t, func(_ *exec.Cmd, line []byte) {
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
	r.OK(t)
	f.id = f.read(t, rootCompute, "cluster/c1", `.metadata.annotations.workloads\.kcp\.dev/setup-id`)
	require.NotEmpty(t, f.id)
}

func (f *Fleet) HasAPIs(t *testing.T) {
	var w Workspace
	require.NoError(t, json.Unmarshal([]byte(f.User(t, "root", "get", "workspace", "team", "--output", "json").Run(t.Context(), t).OK(t).Stdout), &w))
	require.Equal(t, "beta", w.Metadata.Annotations["core.kcp.io/shard"])
	for _, cluster := range []string{"c1", "c2"} {
		f.condition(t, cluster, "Ready", "True")
		f.condition(t, cluster, "APIsCompatible", "True")
	}
	Eventually(t.Context(), t, func() error {
		served, err := f.User(t, RootTeam, "api-resources", "--output", "name").Run(t.Context(), t).Output()
		for _, resource := range []string{"deployments.apps", "services", "ingresses.networking.k8s.io", f.sites()} {
			if err == nil && !slices.Contains(strings.Fields(served), resource) {
				err = fmt.Errorf("%s is not served: %s", resource, served)
			}
		}
		return err
	})
}

func (f *Fleet) Runs(t *testing.T) {
	began := time.Now()
	f.Apply(t, RootTeam, fmt.Sprintf(WebObjects, "team", 5))
	Eventually(t.Context(), t, func() error {
		for _, cluster := range []string{"c1", "c2"} {
			all, err := f.tryPods(t, cluster, RootTeam, "app=web")
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
	f.User(t, RootTeam, "rollout", "status", "deployment/web", "--timeout=3m").Run(t.Context(), t).OK(t)
	t.Logf("5 pods are ready %s after", time.Since(began).Round(100*time.Millisecond))
	Eventually(t.Context(), t, func() error {
		row, err := f.User(t, RootTeam, "get", "deployment", "web", "--no-headers").Run(t.Context(), t).Output()
		if err == nil && !regexp.MustCompile(`^web +5/5 `).MatchString(row) {
			err = errors.New(row)
		}
		return err
	})
	c1, c2 := f.halves(t, RootTeam, "app=web", 5)
	f.placed(t, "web", map[string][2]int64{"c1": {int64(c1), int64(c1)}, "c2": {int64(c2), int64(c2)}})
	f.Serves(t, RootTeam, "team", "v1")
	for _, cluster := range []string{"c1", "c2"} {
		for _, object := range []string{"service/web", "ingress/web"} {
			get := f.On(cluster, "get", object, "--namespace", f.Namespaces(t, cluster, RootTeam)[0])
			Eventually(t.Context(), t, func() error { _, err := get.Run(t.Context(), t).Output(); return err })
		}
	}
	f.memory(t, "c1", f.Name, f.Name+"-workloads-controller")
}

// placed waits until a Deployment has these replicas and ready replicas by cluster.
func (f *Fleet) placed(t *testing.T, deployment string, want map[string][2]int64) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		text, err := f.tryRead(t, RootTeam, "deployment/"+deployment, `.metadata.annotations.workloads\.kcp\.dev/placement`)
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

// Serves waits until all pods of the Deployment web answer with what they read, on both nodes.
func (f *Fleet) Serves(t *testing.T, workspace, content, release string) {
	t.Helper()
	for _, at := range [][2]string{{"c1", "testbed-a"}, {"c2", "testbed-b"}} {
		cluster, node := at[0], at[1]
		want := Answer{content, release, node, f.Namespaces(t, cluster, workspace)[0], "secret of " + content}
		f.AllAnswer(t, cluster, workspace, "app=web", want)
	}
}

func (f *Fleet) Scales(t *testing.T) {
	f.User(t, RootTeam, "scale", "deployment/web", "--replicas=9").Run(t.Context(), t).OK(t)
	f.User(t, RootTeam, "rollout", "status", "deployment/web", "--timeout=3m").Run(t.Context(), t).OK(t)
	f.becomes(t, RootTeam, "deployment/web", ".status.readyReplicas", "9")
	f.halves(t, RootTeam, "app=web", 9)
}

// RollsOut changes the image. Meanwhile the clusters always have as many available pods as the Deployment requests.
func (f *Fleet) RollsOut(t *testing.T) {
	f.Apply(t, RootTeam, strings.ReplaceAll(fmt.Sprintf(WebObjects, "team", 9), "web:v1", "web:v2"))
	done := make(chan Result, 1)
	rollout := f.User(t, RootTeam, "rollout", "status", "deployment/web", "--timeout=4m")
	go func() { done <- rollout.Run(t.Context(), t) }()
	looks := 0
	for {
		available := f.available(t)
		if available < 9 {
			t.Logf("%d pods are available", available)
			time.Sleep(SecondLook)
			require.GreaterOrEqual(t, f.available(t), 9, "%d a second before", available)
		}
		looks++
		select {
		case r := <-done:
			r.OK(t)
			t.Logf("%d looks during the rollout", looks)
			f.Serves(t, RootTeam, "team", "v2")
			return
		case <-time.After(Pause):
		}
	}
}

// SecondLook is the time between two looks at a number that is low. It is the sum of what several clusters say, one after
// the other, and a busy node answers a probe too late now and then. A number that is low twice is low.
const SecondLook = time.Second

// available returns how many pods of the Deployment web the clusters count as available, together.
func (f *Fleet) available(t *testing.T) (all int) {
	t.Helper()
	for _, cluster := range []string{"c1", "c2"} {
		Eventually(t.Context(), t, func() error {
			namespaces, err := f.TryNamespaces(t, cluster, RootTeam)
			if err == nil && len(namespaces) != 1 {
				err = fmt.Errorf("%s has the namespaces %v", cluster, namespaces)
			}
			if err != nil {
				return err
			}
			var d appsv1.Deployment
			get := f.On(cluster, "get", "deployment", "web", "--namespace", namespaces[0], "--output", "json")
			if err := get.Run(t.Context(), t).Decode(&d); err != nil {
				return err
			}
			all += int(d.Status.AvailableReplicas)
			return nil
		})
	}
	return all
}

// Guarded changes the Deployment with a patch of which kcp loses items of lists.
func (f *Fleet) Guarded(t *testing.T) {
	patch := f.User(t, RootTeam, "apply", "--filename", "-")
	patch.Stdin = strings.ReplaceAll(fmt.Sprintf(WebObjects, "team", 9), "web:v1", "web:v3")
	r := patch.Run(t.Context(), t)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "use kubectl apply --server-side")
	require.Equal(t, "8080", f.read(t, RootTeam, "deployment/web", ".spec.template.spec.containers[0].ports[0].containerPort"))
}

// SameNames creates objects of the same names in a workspace on another shard.
func (f *Fleet) SameNames(t *testing.T) {
	f.Apply(t, RootOther, fmt.Sprintf(WebObjects, "other", 2))
	f.User(t, RootOther, "rollout", "status", "deployment/web", "--timeout=3m").Run(t.Context(), t).OK(t)
	f.Serves(t, RootOther, "other", "v1")
	f.Serves(t, RootTeam, "team", "v2")
	for _, cluster := range []string{"c1", "c2"} {
		require.NotEqual(t, f.Namespaces(t, cluster, RootTeam), f.Namespaces(t, cluster, RootOther))
	}
}

func (f *Fleet) Kinds(t *testing.T) {
	f.Apply(t, RootTeam, otherKinds+"---"+fmt.Sprintf(site, f.Name))
	f.becomes(t, RootTeam, "statefulset/db", ".status.readyReplicas", "2")
	counts := map[string][2]int{"c1": {2, 0}, "c2": {0, 2}}[f.atOne(t, "statefulset/db")]
	f.spread(t, RootTeam, "app=db", counts[0], counts[1]) // two clusters would both have a db-0
	f.becomes(t, RootTeam, "statefulset/disk", ".status.readyReplicas", "1")
	f.disk = f.atOne(t, "statefulset/disk")
	f.becomes(t, RootTeam, "daemonset/each", ".status.numberReady", "2")
	f.spread(t, RootTeam, "app=each", 1, 1)
	f.becomes(t, RootTeam, "job/once", ".status.succeeded", "1")
	ran := f.read(t, RootTeam, "job/once", ".status.startTime")
	at := f.atOne(t, f.sites()+"/front")
	f.On(at, "patch", f.sites(), "front", "--namespace", f.Namespaces(t, at, RootTeam)[0], "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Open"}}`).
		Run(t.Context(), t).OK(t)
	f.becomes(t, RootTeam, "site/front", ".status.phase", "Open")
	require.Equal(t, ran, f.read(t, RootTeam, "job/once", ".status.startTime"), "the Job has run again")
}

// atOne waits until an object of the workspace team is on a node, and requires that it is on no other.
func (f *Fleet) atOne(t *testing.T, object string) string {
	t.Helper()
	var at []string
	Eventually(t.Context(), t, func() error {
		at = nil
		for _, cluster := range []string{"c1", "c2"} {
			namespaces, err := f.TryNamespaces(t, cluster, RootTeam)
			if err != nil {
				return err
			}
			for _, ns := range namespaces {
				get := f.On(cluster, "get", object, "--namespace", ns, "--ignore-not-found", "--output", "name")
				found, err := get.Run(t.Context(), t).Output()
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

func (f *Fleet) Chooses(t *testing.T) {
	f.Apply(t, RootTeam, fmt.Sprintf(chosen, "selected", "cluster-selector", "region in (us)")+fmt.Sprintf(chosen, "weighted", "weights", "c1=2,c2=1"))
	f.becomes(t, RootTeam, "deployment/selected", ".status.readyReplicas", "3")
	f.Apply(t, RootTeam, fmt.Sprintf(chosen, "apart", "anti-affinity", "app=selected"))
	for _, want := range []struct {
		name   string
		c1, c2 int
	}{{"selected", 0, 3}, {"weighted", 2, 1}, {"apart", 3, 0}} {
		f.becomes(t, RootTeam, "deployment/"+want.name, ".status.readyReplicas", "3")
		f.spread(t, RootTeam, "app="+want.name, want.c1, want.c2)
	}
	explained := f.Command("explain")
	explained.Args = append([]string{"workloads", "explain", "deployment/selected", "--workspace", RootTeam, "--file", f.File}, f.Flags("")...)
	require.Regexp(t, `c1 +no .*do not match`, explained.Run(t.Context(), t).OK(t).Stdout)
	f.User(t, RootTeam, "delete", "deployment", "selected", "weighted", "apart", "--wait=false").Run(t.Context(), t).OK(t)
}

// Confines creates a Deployment that the Pod Security Standard baseline does not allow.
func (f *Fleet) Confines(t *testing.T) {
	deployment := strings.Replace(fmt.Sprintf(chosen, "outside", "max-clusters", "1"), "{containers:", "{hostNetwork: true, containers:", 1)
	f.Apply(t, RootTeam, deployment)
	failure := `.status.conditions[?(@.type=="ReplicaFailure")].`
	f.becomes(t, RootTeam, "deployment/outside", failure+"status", "True")
	require.Contains(t, f.read(t, RootTeam, "deployment/outside", failure+"message"), `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	f.User(t, RootTeam, "delete", "deployment", "outside", "--wait=false").Run(t.Context(), t).OK(t)
}

// Drains takes everything from a cluster that may leave it, and gives it back.
func (f *Fleet) Drains(t *testing.T) {
	f.User(t, RootTeam, "delete", "deployment/web", "statefulset/db", "statefulset/disk", "job/once", "--ignore-not-found").Run(t.Context(), t).OK(t)
	f.Sub(t, "cluster", "cordon", "c2").OK(t)
	f.condition(t, "c2", "Schedulable", "False")
	f.User(t, RootOther, "scale", "deployment/web", "--replicas=3").Run(t.Context(), t).OK(t)
	f.User(t, RootOther, "rollout", "status", "deployment/web", "--timeout=3m").Run(t.Context(), t).OK(t)
	f.spread(t, RootOther, "app=web", 2, 1)
	f.Sub(t, "cluster", "drain", "c2").OK(t)
	f.spread(t, RootOther, "app=web", 3, 0)
	f.becomes(t, rootCompute, "cluster/c2", `.status.conditions[?(@.type=="Schedulable")].reason`, "Drained")
	f.Sub(t, "cluster", "uncordon", "c2").OK(t)
	f.Sub(t, "workloads", "rebalance").OK(t)
	Eventually(t.Context(), t, func() error {
		back, err := f.tryPods(t, "c2", RootOther, "app=web")
		if err == nil && len(back) == 0 {
			err = fmt.Errorf("no pod is back on c2")
		}
		return err
	})
}

// Clears deletes everything that users have created. The volume of a StatefulSet stays, with its namespace, until an
// administrator of its cluster deletes them.
func (f *Fleet) Clears(t *testing.T, workspaces ...string) {
	for _, workspace := range workspaces {
		f.User(t, workspace, "delete", "deployments,statefulsets,daemonsets,jobs,services,ingresses", "--all").Run(t.Context(), t).OK(t)
		f.User(t, workspace, "delete", "configmap/web", "secret/web", "serviceaccount/web").Run(t.Context(), t).OK(t)
	}
	f.User(t, RootTeam, "delete", "sites", "--all").Run(t.Context(), t).OK(t)
	var kept []string
	if f.disk != "" {
		kept = f.Namespaces(t, f.disk, RootTeam)
	}
	f.keeps(t, kept)
	if f.disk != "" {
		f.On(f.disk, "delete", "namespace", kept[0]).Run(t.Context(), t).OK(t)
		f.keeps(t, nil)
	}
}

// keeps waits until the clusters have only these namespaces of workspaces.
func (f *Fleet) keeps(t *testing.T, namespaces []string) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		first, err1 := f.TryNamespaces(t, "c1", "")
		second, err2 := f.TryNamespaces(t, "c2", "")
		err := errors.Join(err1, err2)
		if left := append(first, second...); err == nil && !slices.Equal(left, namespaces) {
			err = fmt.Errorf("the clusters have the namespaces %v", left)
		}
		return err
	})
}
