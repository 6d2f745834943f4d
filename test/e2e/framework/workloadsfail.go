package framework

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// cutFor is how long the second cluster cannot be reached.
const cutFor = 10 * time.Minute

// Replaced is a Deployment that a user deletes and creates again while a cluster is gone.
const Replaced = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "kcpctl.dev/testbed/web:%[3]s"}]}
`

func (f *Fleet) RunsOnBoth(t *testing.T) {
	f.Apply(t, RootTeam, fmt.Sprintf(WebObjects, "team", 6)+"---"+fmt.Sprintf(Replaced, "first", 4, "v1")+"---"+fmt.Sprintf(Replaced, "second", 4, "v1"))
	for _, d := range []struct {
		name     string
		replicas int
	}{{"web", 6}, {"first", 4}, {"second", 4}} {
		f.RolledOut(t, d.name)
		f.Divided(t, d.name, d.replicas)
	}
}

// RolledOut waits until a Deployment has all its replicas.
func (f *Fleet) RolledOut(t *testing.T, name string) {
	t.Helper()
	f.User(t, RootTeam, "rollout", "status", "deployment/"+name, "--timeout=5m").Run(t.Context(), t).OK(t)
}

// Divided waits until both clusters run about a half of a Deployment: a fifth can stay where it is. No pod is doubled.
func (f *Fleet) Divided(t *testing.T, name string, replicas int) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		c1, c2, err := f.tryCounts(t, RootTeam, "app="+name)
		if least := replicas/2 - (replicas+4)/5; err == nil && (c1+c2 != replicas || c1 < least || c2 < least) {
			err = fmt.Errorf("%d pods of %s run on c1, %d on c2", c1, name, c2)
		}
		return err
	})
}

// total waits until the clusters run so many pods of a Deployment together.
func (f *Fleet) total(t *testing.T, name string, replicas int) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		c1, c2, err := f.tryCounts(t, RootTeam, "app="+name)
		if err == nil && c1+c2 != replicas {
			err = fmt.Errorf("%d pods of %s run on c1, %d on c2", c1, name, c2)
		}
		return err
	})
}

// lost waits until c2 is not ready, and its share runs on c1.
func (f *Fleet) lost(t *testing.T, began time.Time) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		ready, err := f.tryRead(t, rootCompute, "cluster/c2", `.status.conditions[?(@.type=="`+api.ConditionReady+`")].status`)
		if err == nil && ready == "True" {
			err = fmt.Errorf("c2 is still ready")
		}
		return err
	})
	t.Logf("c2 is not ready after %s: %s", time.Since(began).Round(time.Second), f.read(t, rootCompute, "cluster/c2", ".status.conditions"))
	Eventually(t.Context(), t, func() error {
		all, err := f.tryPods(t, "c1", RootTeam, "app=web")
		if err == nil && len(all) != 6 {
			err = fmt.Errorf("%d pods run on c1", len(all))
		}
		return err
	})
	f.RolledOut(t, "web")
	t.Logf("c1 runs everything after %s", time.Since(began).Round(time.Second))
}

// replace deletes a Deployment while c2 is gone, and creates another of its name with another image.
func (f *Fleet) replace(t *testing.T, name string) {
	t.Helper()
	f.User(t, RootTeam, "delete", "deployment", name, "--wait=false").Run(t.Context(), t).OK(t)
	f.Apply(t, RootTeam, fmt.Sprintf(Replaced, name, 4, "v2"))
}

// returns waits until c2 has its share again, without anything of before.
func (f *Fleet) returns(t *testing.T, name string) {
	t.Helper()
	began := time.Now()
	f.condition(t, "c2", api.ConditionReady, "True")
	t.Logf("c2 is ready after %s", time.Since(began).Round(time.Second))
	f.Divided(t, "web", 6)
	f.RolledOut(t, "web")
	f.RolledOut(t, name)
	f.total(t, name, 4) // all of them on c1: what runs does not move
	for _, cluster := range []string{"c1", "c2"} {
		Eventually(t.Context(), t, func() error {
			all, err := f.tryPods(t, cluster, RootTeam, "app="+name)
			for _, p := range all {
				if image := p.Spec.Containers[0].Image; err == nil && image != "kcpctl.dev/testbed/web:v2" {
					err = fmt.Errorf("a pod of the deleted Deployment is on %s: %s has the image %s", cluster, p.Name, image)
				}
			}
			return err
		})
	}
	f.Serves(t, RootTeam, "team", "v1")
	t.Logf("c2 has its share after %s", time.Since(began).Round(time.Second))
}

// survive requires that pods which ran on c2 before it was lost run on: a cluster that does not answer loses nothing.
func (f *Fleet) survive(t *testing.T, before map[string]bool, kept int) {
	t.Helper()
	left := 0
	for uid := range f.uids(t, "c2") {
		if before[uid] {
			left++
		}
	}
	require.GreaterOrEqual(t, left, kept, "pods of before that run on c2")
}

func (f *Fleet) LosesServer(t *testing.T) {
	testbed := func(args ...string) {
		Command{Name: os.Getenv("E2E_TESTBED"), Args: append(args, "--node", "b")}.Run(context.Background(), t).OK(t)
	}
	t.Cleanup(func() { testbed("up") })
	testbed("stop", "kube-apiserver")
	f.lost(t, time.Now())
	f.replace(t, "first")
	testbed("up")
	f.returns(t, "first")
}

// LosesLink cuts the link between kcp and the syncer. What runs on c2 runs on, until the syncer knows better.
func (f *Fleet) LosesLink(t *testing.T) {
	syncer := f.syncerPod(t)
	Cut(t, BetweenNodes)
	began := time.Now()
	f.lost(t, began)
	before := f.uids(t, "c2")
	require.NotEmpty(t, before)
	f.replace(t, "second")
	for time.Since(began) < cutFor {
		require.Equal(t, before, f.uids(t, "c2"), "nothing was to change on c2")
		select {
		case <-t.Context().Done():
			return
		case <-time.After(15 * time.Second):
		}
	}
	Heal(t)
	f.returns(t, "second")
	f.survive(t, before, 2) // its share of web, while c1 ran it, too
	require.Equal(t, syncer.UID, f.syncerPod(t).UID, "it is another pod")
}

// uids returns the pods of the workspace team on a cluster.
func (f *Fleet) uids(t *testing.T, cluster string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, p := range f.Pods(t, cluster, RootTeam, "") {
		out[string(p.UID)] = true
	}
	return out
}

// quota is a ResourceQuota of c2 for the workspace team: no pod more, and no Deployment more.
const quota = `{apiVersion: v1, kind: ResourceQuota, metadata: {name: full, namespace: %s}, spec: {hard: {pods: "%d", count/deployments.apps: "%d"}}}`

func (f *Fleet) ExceedsQuota(t *testing.T) {
	ns := f.Namespaces(t, "c2", RootTeam)[0]
	var has struct{ Items []struct{} } // not those that were created while c2 was lost: they run on c1
	require.NoError(t, f.On("c2", "get", "deployments", "--namespace", ns, "--output", "json").Run(t.Context(), t).Decode(&has))
	create := f.On("c2", "apply", "--filename", "-")
	create.Stdin = fmt.Sprintf(quota, ns, len(f.uids(t, "c2")), len(has.Items))
	create.Run(t.Context(), t).OK(t)
	f.On("c2", "wait", "resourcequota/full", "--namespace", ns, "--for=jsonpath={.status.hard.pods}", "--timeout=1m").Run(t.Context(), t).OK(t)

	f.User(t, RootTeam, "scale", "deployment/web", "--replicas=10").Run(t.Context(), t).OK(t)
	f.Apply(t, RootTeam, fmt.Sprintf(Replaced, "more", 4, "v1"))
	failure := `.status.conditions[?(@.type=="ReplicaFailure")].`
	f.becomes(t, RootTeam, "deployment/web", failure+"status", "True")
	require.Contains(t, f.read(t, RootTeam, "deployment/web", failure+"message"), "exceeded quota: full")
	f.Refused(t, "more", "QuotaExceeded", "exceeded quota: full")

	f.On("c2", "delete", "resourcequota", "full", "--namespace", ns).Run(t.Context(), t).OK(t)
	f.RolledOut(t, "web")
	f.RolledOut(t, "more")
	f.total(t, "more", 4)
	f.User(t, RootTeam, "delete", "deployment", "more").Run(t.Context(), t).OK(t)
}

// Refused waits until a Deployment has the reason why c2 refuses its part, and requires that explain prints it too.
func (f *Fleet) Refused(t *testing.T, name, reason, cause string) {
	t.Helper()
	condition := `.status.conditions[?(@.type=="` + api.ConditionSynced + `")].`
	f.becomes(t, RootTeam, "deployment/"+name, condition+"reason", reason)
	message := f.read(t, RootTeam, "deployment/"+name, condition+"message")
	require.Contains(t, message, "c2")
	require.Contains(t, message, cause)
	Eventually(t.Context(), t, func() error { return f.explains(t, name, reason, cause) }) // c1 can come after c2
}

// explains returns an error unless explain says that c2 refuses a Deployment, and why, and that c1 has it.
func (f *Fleet) explains(t *testing.T, name, reason, cause string) error {
	t.Helper()
	var e struct {
		Clusters []struct {
			Cluster string
			Synced  *struct{ Status, Reason, Message string }
		}
	}
	r := f.Sub(t, "workloads", "explain", "deployment/"+name, "--workspace", RootTeam, "--output", "json")
	err := r.Decode(&e)
	said := 0
	for _, c := range e.Clusters {
		switch {
		case c.Synced == nil:
		case c.Cluster == "c2" && c.Synced.Status == "False" && c.Synced.Reason == reason && strings.Contains(c.Synced.Message, cause):
			said++
		case c.Cluster == "c1" && c.Synced.Status == "True":
			said++
		}
	}
	if err == nil && (said != 2 || len(e.Clusters) != 2) {
		err = fmt.Errorf("explain prints %s", r.Stdout)
	}
	return err
}

// policy refuses Deployments of c2 with a label. Others that use the same nodes do not have it.
const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  validations: [{expression: "!has(object.metadata.labels) || !('%[1]s' in object.metadata.labels)", message: "%[1]s is not wanted here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

func (f *Fleet) IsDenied(t *testing.T) {
	remove := f.On("c2", "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", f.Name, "--ignore-not-found")
	t.Cleanup(func() { remove.Run(context.Background(), t).OK(t) })
	create := f.On("c2", "apply", "--filename", "-")
	create.Stdin = fmt.Sprintf(policy, f.Name)
	create.Run(t.Context(), t).OK(t)
	unwanted := strings.Replace(fmt.Sprintf(Replaced, "unwanted", 4, "v1"), "labels: {app: unwanted}}\nspec", "labels: {app: unwanted, "+f.Name+": here}}\nspec", 1)
	Eventually(t.Context(), t, func() error { // the API server reads policies after a moment
		try := f.On("c2", "create", "--dry-run=server", "--filename", "-")
		try.Stdin = unwanted
		if r := try.Run(t.Context(), t); r.Code == 0 {
			return fmt.Errorf("c2 accepts the Deployment: %s", r.Stdout)
		}
		return nil
	})
	f.Apply(t, RootTeam, unwanted)
	f.Refused(t, "unwanted", "Denied", f.Name+" is not wanted here")

	remove.Run(t.Context(), t).OK(t)
	f.RolledOut(t, "unwanted")
	f.total(t, "unwanted", 4)
	f.User(t, RootTeam, "delete", "deployment", "unwanted").Run(t.Context(), t).OK(t)
}

// LosesField removes a field of the kind Site from c2. What users have written stays.
func (f *Fleet) LosesField(t *testing.T) {
	f.Apply(t, RootTeam, fmt.Sprintf(site, f.Name))
	f.Define(t, "c2", "")
	f.condition(t, "c2", api.ConditionAPIsCompatible, "False")
	require.Contains(t, f.read(t, rootCompute, "cluster/c2", `.status.conditions[?(@.type=="`+api.ConditionAPIsCompatible+`")].message`), "spec.region")
	f.condition(t, "c1", api.ConditionAPIsCompatible, "True")
	require.Equal(t, "eu", f.read(t, RootTeam, "site/front", ".spec.region"))
	f.Define(t, "c2", RegionField)
	f.condition(t, "c2", api.ConditionAPIsCompatible, "True")
	require.Equal(t, "eu", f.read(t, RootTeam, "site/front", ".spec.region"))
}
