package day2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

const (
	// joiner is the Cluster that joins.
	joiner = "c3"
	// quietFor is how long nothing may move in the end: longer than what was scheduled is reserved, and than two
	// reports of capacity.
	quietFor = 100 * time.Second
	// joinPatience is how long a third of a Deployment of joinLarge replicas may take to move: four minutes by the
	// limit.
	joinPatience = 10 * time.Minute
	joinLarge    = 60
	joinSmall    = 9
)

// joining is a fleet that a third cluster joins.
type joining struct {
	*framework.Fleet
	third string // path of its kubeconfig
	// space is the namespace of the workspace in the clusters.
	space string
	// seen are the looks at the Deployments since it was added.
	seen []look
}

// look has the replicas by Deployment and cluster at a time.
type look struct {
	at       time.Time
	replicas map[string]map[string]int64
}

// TestClusterWorkloadsJoin adds a third cluster to two that run Deployments. All three are nodes of the testbed, with
// kubelets and real pods. Nothing moves to it until a user asks for that. Then it gets its share a tenth at a time, and
// meanwhile no Deployment has fewer available pods than its user has asked for.
func TestClusterWorkloadsJoin(t *testing.T) {
	third := thirdNode(t)
	j := &joining{Fleet: framework.NewFleet(t), third: third}
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"one up", j.Start},
		{"Deployments run on both clusters", j.runsOnTwo},
		{"a third cluster is added", j.adds},
		{"nothing moves unasked", j.stays},
		{"replicas move to it with surge", j.moves},
		{"their number in a minute is limited", j.limited},
		{"nothing moves afterwards", j.rests},
		{"pods on it have what they need", j.served},
		{"diff is empty", func(t *testing.T) { require.Empty(t, j.Kcpctl(t, "diff").OK(t).Stdout) }},
		{"deleted objects leave", j.leaves},
		{"down leaves nothing", func(t *testing.T) { j.LeavesNothing(t); j.Remain(t, joiner) }},
	} {
		framework.Step(t, part.name, part.do)
	}
}

// thirdNode starts node c of the testbed, and returns the path of its kubeconfig. It stops the node in the end, unless
// it ran before.
func thirdNode(t *testing.T) string {
	t.Helper()
	testbed := os.Getenv("E2E_TESTBED")
	if testbed == "" {
		t.Skip("E2E_TESTBED is not set: this test needs three nodes of the testbed")
	}
	on := func(args ...string) framework.Command {
		return framework.Command{Name: testbed, Args: append(args, "--node", "c")}
	}
	if on("kubeconfig").Run(t.Context(), t).Code != 0 {
		t.Cleanup(func() { on("down").Run(context.Background(), t).OK(t) }) // after the setup is gone
	}
	on("up").Run(t.Context(), t).OK(t)
	on("workload-images", framework.Given(t, "E2E_KCPCTL")).Run(t.Context(), t).OK(t)
	return strings.TrimSpace(on("kubeconfig").Run(t.Context(), t).OK(t).Stdout)
}

// asked are the replicas of the Deployments.
func (j *joining) asked() map[string]int64 {
	return map[string]int64{"large": joinLarge, "web": joinSmall}
}

func (j *joining) runsOnTwo(t *testing.T) {
	j.Apply(t, framework.RootTeam, fmt.Sprintf(framework.WebObjects, "team", joinSmall)+"---"+fmt.Sprintf(framework.Replaced, "large", joinLarge, "v1"))
	for _, name := range slices.Sorted(maps.Keys(j.asked())) {
		j.RolledOut(t, name)
		j.Divided(t, name, int(j.asked()[name]))
	}
	for n := range singles {
		j.Apply(t, framework.RootTeam, fmt.Sprintf(framework.Replaced, fmt.Sprint("single-", n), 1, "v1"))
	}
	for n := range singles {
		j.RolledOut(t, fmt.Sprint("single-", n))
	}
	j.space = j.Namespaces(t, "c1", framework.RootTeam)[0]
}

func (j *joining) adds(t *testing.T) {
	j.Physical[joiner] = &framework.Cluster{Setup: j.Name, Namespace: j.Name, Kubeconfig: j.third, Home: j.Physical["c1"].Home}
	j.Define(t, joiner, framework.RegionField)
	began := time.Now()
	added := j.Sub(t, "cluster", "add", joiner, "--kubeconfig", j.third, "--label", "region=eu").OK(t)
	t.Logf("cluster add took %s: %s", time.Since(began).Round(100*time.Millisecond), added.Stderr)
}

// singles are Deployments of one replica.
const singles = 20

// stays requires that no pod is replaced because a cluster has joined, and then asks for it.
func (j *joining) stays(t *testing.T) {
	before, began := j.uids(t), time.Now()
	require.Len(t, before, joinLarge+joinSmall+singles)
	for n := 0; time.Since(began) < quietFor; n++ {
		j.User(t, framework.RootTeam, "label", "deployments", "--selector", "!"+api.LabelCluster, fmt.Sprint("look=n", n), "--overwrite").Run(t.Context(), t).OK(t)
		time.Sleep(framework.Pause)
	}
	require.Equal(t, before, j.uids(t))
	for n := range singles {
		j.User(t, framework.RootTeam, "delete", "deployment", fmt.Sprint("single-", n)).Run(t.Context(), t).OK(t)
	}
	t.Log(j.Sub(t, "workloads", "rebalance", "--dry-run").OK(t).Stdout)
	j.Sub(t, "workloads", "rebalance").OK(t)
	j.seen = append(j.seen, j.look(t))
}

// look reads the Deployments. Of each, enough pods are available, also in the clusters themselves, and no more than one
// step replaces others.
func (j *joining) look(t *testing.T) look {
	t.Helper()
	out, low := j.lookOnce(t)
	if low != nil {
		t.Log(low)
		time.Sleep(framework.SecondLook)
		_, still := j.lookOnce(t)
		require.NoError(t, still, "a second before: %v", low)
	}
	return out
}

// lookOnce returns an error if a number of available pods is low. The leaves are those of one list.
func (j *joining) lookOnce(t *testing.T) (out look, low error) {
	t.Helper()
	out.replicas = map[string]map[string]int64{}
	available, placed := map[string]int64{}, map[string]int64{}
	atLeast := func(what, name string, n int64) {
		if n < j.asked()[name] {
			low = errors.Join(low, fmt.Errorf("%s: %s has %d available pods: %v", what, name, n, out.replicas[name]))
		}
	}
	for name, d := range j.deployments(t) {
		root, of := d.Annotations[api.AnnotationName], d.Labels[api.LabelCluster]
		if _, asked := j.asked()[cmp.Or(root, name)]; !asked {
			continue // a single that is being deleted
		}
		if of == "" {
			atLeast("in the status", name, int64(d.Status.AvailableReplicas))
			continue
		}
		if out.replicas[root] == nil {
			out.replicas[root] = map[string]int64{}
		}
		out.replicas[root][of] = int64(*d.Spec.Replicas)
		placed[root] += int64(*d.Spec.Replicas)
		available[root] += int64(min(d.Status.AvailableReplicas, *d.Spec.Replicas))
	}
	out.at = time.Now()
	below := j.Below(t)
	for name, n := range j.asked() {
		require.LessOrEqual(t, placed[name], n+schedule.Moves(n), "%s: %v", name, out.replicas[name])
		atLeast("in the leaves", name, available[name])
		atLeast("in the clusters", name, below[name])
	}
	return out, low
}

// deployments returns the Deployments of the workspace and their leaves, by name.
func (j *joining) deployments(t *testing.T) map[string]appsv1.Deployment {
	t.Helper()
	list := deploymentsOf(t, j.User(t, framework.RootTeam, "get", "deployments", "--namespace", "default", "--output", "json"))
	out := map[string]appsv1.Deployment{}
	for _, d := range list.Items {
		out[d.Name] = d
	}
	return out
}

// deploymentsOf returns the Deployments that kubectl prints. It tries again only if it gets no answer.
func deploymentsOf(t *testing.T, get framework.Command) (list appsv1.DeploymentList) {
	t.Helper()
	framework.Eventually(t.Context(), t, func() error {
		list = appsv1.DeploymentList{}
		return get.Run(t.Context(), t).Decode(&list)
	})
	return list
}

// Below returns the available replicas of the Deployments in the clusters. The one that gets replicas is read last, so
// that no pod is missed that replaces another.
func (j *joining) Below(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, of := range slices.Sorted(maps.Keys(j.Physical)) {
		for _, d := range deploymentsOf(t, j.On(of, "get", "deployments", "--namespace", j.space, "--output", "json")).Items {
			out[d.Name] += int64(d.Status.AvailableReplicas)
		}
	}
	return out
}

// goals returns the replicas that each cluster gets in the end, by Deployment.
func (j *joining) goals(t *testing.T) map[string]map[string]int64 {
	t.Helper()
	out, all := map[string]map[string]int64{}, j.deployments(t)
	for name := range j.asked() {
		d := all[name]
		out[name] = schedule.GoalOf(d.Annotations[api.AnnotationExplain])
	}
	return out
}

// moves looks until each cluster has its goal. These are even: the nodes are alike, except for the few pods of kcp
// itself.
func (j *joining) moves(t *testing.T) {
	began := j.seen[0].at
	for explained := false; ; {
		require.Less(t, time.Since(began), joinPatience, "%v", j.seen[len(j.seen)-1].replicas)
		last := j.seen[len(j.seen)-1]
		next := j.look(t)
		j.seen = append(j.seen, next)
		if n := next.replicas["large"][joiner]; n > 0 && n < joinLarge/4 && !explained {
			explained = true
			j.explained(t)
		}
		for name, shares := range next.replicas {
			require.GreaterOrEqual(t, shares[joiner], last.replicas[name][joiner], "%s moves back", name)
			for _, of := range []string{"c1", "c2"} {
				require.LessOrEqual(t, shares[of], last.replicas[name][of], "%s moves to %s", name, of)
			}
		}
		if !maps.EqualFunc(last.replicas, next.replicas, maps.Equal) {
			t.Logf("%s after: %v", next.at.Sub(began).Round(time.Second), next.replicas)
		}
		if goals := j.goals(t); maps.EqualFunc(goals, next.replicas, maps.Equal) && goals["large"][joiner] > 0 {
			t.Logf("%d looks until %v", len(j.seen), goals)
			break
		}
		time.Sleep(framework.Pause)
	}
	for name, shares := range j.seen[len(j.seen)-1].replicas {
		n := j.asked()[name]
		for of, share := range shares {
			require.InDelta(t, float64(n)/3, float64(share), max(1, float64(n)/20), "%s on %s: %v", name, of, shares)
		}
	}
}

// explained requires that a user is told what is happening.
func (j *joining) explained(t *testing.T) {
	t.Helper()
	explain := j.Command("explain")
	explain.Args = append([]string{"workloads", "explain", "deployment/large", "--workspace", framework.RootTeam, "--file", j.File}, j.Flags("")...)
	out := explain.Run(t.Context(), t).OK(t).Stdout
	t.Log(out)
	require.Regexp(t, `c3 +yes +(1[789]|2[0123]) +(6|12) .* is a candidate`, out)
}

// limited requires that no more replicas moved in any minute than may. A look takes a moment, so a minute is a little
// less.
func (j *joining) limited(t *testing.T) {
	for name, n := range j.asked() {
		for i, from := range j.seen {
			for _, to := range j.seen[i:] {
				if to.at.Sub(from.at) < time.Minute-5*time.Second {
					moved := to.replicas[name][joiner] - from.replicas[name][joiner]
					require.LessOrEqual(t, moved, schedule.MovesPerMinute(n), "%s between %s and %s", name, from.at, to.at)
				}
			}
		}
	}
}

// uids returns the pods of all clusters.
func (j *joining) uids(t *testing.T) (all []string) {
	t.Helper()
	for of := range j.Physical {
		for _, p := range j.Pods(t, of, framework.RootTeam, "") {
			all = append(all, of+" "+p.Name+" "+string(p.UID))
		}
	}
	slices.Sort(all)
	return all
}

// rests requires that no pod is replaced in the end, also not by decisions that a user causes.
func (j *joining) rests(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(j.asked())) {
		j.RolledOut(t, name)
	}
	before, began, last := j.uids(t), time.Now(), j.seen[len(j.seen)-1].replicas
	require.Len(t, before, joinLarge+joinSmall)
	for n := 0; time.Since(began) < quietFor; n++ {
		j.User(t, framework.RootTeam, "label", "deployment/large", "deployment/web", fmt.Sprint("look=n", n), "--overwrite").Run(t.Context(), t).OK(t)
		time.Sleep(framework.Pause)
		require.Equal(t, last, j.look(t).replicas)
	}
	require.Equal(t, before, j.uids(t))
}

// served requires that the pods on the third cluster answer with their ConfigMap and Secret.
func (j *joining) served(t *testing.T) {
	j.AllAnswer(t, joiner, framework.RootTeam, "app=web", framework.Answer{Content: "team", Release: "v1", Node: "testbed-c", Namespace: j.space, Secret: "secret of team"})
}

func (j *joining) leaves(t *testing.T) {
	j.Clears(t, framework.RootTeam)
	framework.Eventually(t.Context(), t, func() error {
		left, err := j.TryNamespaces(t, joiner, "")
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%s has the namespaces %v", joiner, left)
		}
		return err
	})
}
