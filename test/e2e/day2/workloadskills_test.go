package day2

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

const (
	chaosWorkspaces = 10
	chaosObjects    = 10 // Deployments in each workspace, and as many ConfigMaps
	chaosReplicas   = 6  // at most, of a Deployment
	// chaosSeed decides what users do.
	chaosSeed = 1
)

const chaosSetup = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  version: v0.32.3
  shards: [{name: alpha}, {name: beta}]
  kubeconfigs: [{name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}]
  workloads:
    workspace: root:compute
    workspaceType: workload
    apis: [deployments.apps]
    clusters:
    - {name: c1, kubeconfig: %s}
    - {name: c2, kubeconfig: %s, syncMode: None}
  workspaces:
`

// chaos is a setup with two physical clusters. The controller syncs c1, and a process of the test c2.
type chaos struct {
	*framework.Workloads
	clusters map[string]*physical
	// admin and credential are the paths of kubeconfigs: of an administrator, and of the syncer of c2.
	admin, credential string
	syncer            *exec.Cmd

	mu sync.Mutex
	// want has the replicas of each Deployment that should exist, by workspace and name.
	want map[[2]string]int64
	// tampered is how many leaves were changed.
	tampered int
}

// TestLocalWorkloadsKills kills the controller, a syncer, a shard and API servers of physical clusters in turn while
// users create, scale and delete objects. In the end, nothing is lost and nothing is there twice.
func TestLocalWorkloadsKills(t *testing.T) {
	c := newChaos(t)
	stop := c.use()
	c.kills("alpha")
	stop()
	c.Eventually(c.exact)
}

// kills kills each part in turn, and starts it again.
func (c *chaos) kills(shard string) {
	c.Killed("the controller", func() { c.kill("controller"); c.pause(); c.Up(c.T) })
	c.Killed("the syncer", func() { c.killSyncer(); c.pause(); c.startSyncer() })
	c.Killed("a shard", func() { c.kill(shard); c.pause(); c.Up(c.T) })
	for _, name := range []string{"c1", "c2"} {
		p := c.clusters[name]
		c.Killed("the API server of "+name, func() {
			require.NoError(c, p.server.Kill())
			c.pause()
			require.NoError(c, p.server.Restart(c.Context()))
		})
	}
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{clusters: map[string]*physical{}, want: map[[2]string]int64{}}
	for _, name := range []string{"c1", "c2"} {
		c.clusters[name] = newPhysical(t)
	}
	s := framework.NewLocal(t, "workloads")
	s.Text = fmt.Sprintf(chaosSetup, s.Name, c.clusters["c1"].kubeconfig, c.clusters["c2"].kubeconfig)
	for i := range chaosWorkspaces {
		s.Text += fmt.Sprintf("  - {name: team-%d, type: \"root:compute:workload\", selector: {name: %s}}\n", i, []string{"root", "alpha", "beta"}[i%3])
	}
	s.Write(t, s.Text)
	framework.Eventually(t.Context(), t, func() error { // on a busy machine, workspaces need more than the two minutes that up waits for them
		if r := s.Kcpctl(t, "up"); r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	c.Workloads = &framework.Workloads{T: t, Setup: s}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller: %s", s.Command("logs", "workloads/controller", "--tail", "200").Run(context.Background(), t).Stdout)
		}
	})
	c.admin = filepath.Join(t.TempDir(), "kcp.kubeconfig")
	require.NoError(t, os.WriteFile(c.admin, []byte(s.Kcpctl(t, "kubeconfig", "admin").OK(t).Stdout), 0o600))
	var err error
	c.Kcp, err = connect.KCP(c.admin, "")
	require.NoError(t, err)
	c.Kcp.QPS = -1
	c.credential = filepath.Join(t.TempDir(), "syncer.kubeconfig")
	s.Kcpctl(t, "kubeconfig", "--syncer", "c2", "-o", c.credential).OK(t)
	t.Cleanup(c.logState)
	c.startSyncer()
	t.Cleanup(c.killSyncer)
	c.Eventually(func() error { return c.ready("c2", "True", "Ready") })
	cfg, err := connect.KCP(c.credential, "")
	require.NoError(t, err)
	c.ConfinedInCompute(c.As(cfg, "root:compute"))
	return c
}

// logState logs, if the test has failed, what the syncer of c2 has logged, and the leaves that are being deleted: on
// which side something is stuck.
func (c *chaos) logState() {
	if !c.Failed() {
		return
	}
	if raw, err := os.ReadFile(filepath.Join(filepath.Dir(c.credential), "syncer.log")); err == nil {
		lines := strings.Split(string(raw), "\n")
		c.Logf("the syncer of c2: %s", strings.Join(lines[max(0, len(lines)-100):], "\n"))
	}
	for i := range chaosWorkspaces {
		workspace := fmt.Sprintf("root:team-%d", i)
		for _, r := range synced {
			list, err := c.In(workspace).Resource(r).Namespace("default").List(context.Background(), metav1.ListOptions{})
			if err != nil {
				c.Logf("%s of %s: %v", r.Resource, workspace, err)
				continue
			}
			for _, o := range list.Items {
				if o.GetDeletionTimestamp() != nil {
					c.Logf("%s %s of %s is being deleted since %s: finalizers %v, labels %v", r.Resource, o.GetName(), workspace, o.GetDeletionTimestamp(), o.GetFinalizers(), o.GetLabels())
				}
			}
		}
	}
}

// startSyncer starts the syncer of c2.
func (c *chaos) startSyncer() {
	c.Helper()
	log, err := os.OpenFile(filepath.Join(filepath.Dir(c.credential), "syncer.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c, err)
	defer log.Close()
	c.syncer = exec.Command(os.Getenv("E2E_KCPCTL"), "syncer", "--cluster-name", "c2", "--kcp-kubeconfig", c.credential, "--kubeconfig", c.clusters["c2"].kubeconfig)
	c.syncer.Stdout, c.syncer.Stderr = log, log
	require.NoError(c, c.syncer.Start())
}

func (c *chaos) killSyncer() {
	if c.syncer != nil {
		_ = c.syncer.Process.Kill()
		_ = c.syncer.Wait()
		c.syncer = nil
	}
}

// kill kills the process of the setup whose name contains a text.
func (c *chaos) kill(part string) {
	c.Helper()
	all := c.Running(c.T)
	for name, i := range all {
		if strings.Contains(name, part) {
			i.Kill(c.T)
			return
		}
	}
	require.Fail(c, "no process", "%s in %v", part, all)
}

func (c *chaos) pause() { time.Sleep(3 * time.Second) }

func (c *chaos) Killed(what string, f func()) {
	c.Helper()
	began := time.Now()
	f()
	c.Logf("killed %s, and started it again: %s", what, time.Since(began).Round(time.Second))
	c.pause()
}

// use lets users write until the returned function is called. Each workspace has one user, who repeats what fails. Users
// do the same in every run, but what else happens meanwhile differs.
func (c *chaos) use() (stop func()) {
	var work sync.WaitGroup
	done := make(chan struct{})
	c.Logf("users have the seed %d, and the number of their workspace", chaosSeed)
	for i := range chaosWorkspaces {
		workspace := fmt.Sprintf("root:team-%d", i)
		client, random := c.In(workspace), rand.New(rand.NewPCG(chaosSeed, uint64(i)))
		work.Go(func() {
			for n := 0; ; n++ {
				// Each object is created once; when all are there, any is scaled, or deleted and created again.
				k := n
				if n >= chaosObjects {
					k = random.IntN(chaosObjects)
				}
				name, replicas := fmt.Sprintf("web-%d", k), int64(1+random.IntN(chaosReplicas))
				if n >= chaosObjects && random.IntN(4) == 0 {
					replicas = 0
				}
				c.change(client, workspace, name, replicas)
				if random.IntN(4) == 0 {
					c.tamper(client, name)
				}
				select {
				case <-done:
					if n >= chaosObjects {
						return
					}
				case <-time.After(time.Duration(random.IntN(1000)) * time.Millisecond):
				}
			}
		})
	}
	return func() {
		close(done)
		work.Wait()
		require.Positive(c, c.tampered)
		c.Logf("%d leaves were changed", c.tampered)
	}
}

// change creates or scales a Deployment with its ConfigMap, or deletes them if it is to have no replicas. It returns when
// kcp has accepted that.
func (c *chaos) change(client dynamic.Interface, workspace, name string, replicas int64) {
	at := [2]string{workspace, name}
	if replicas == 0 {
		for _, r := range []dynamic.NamespaceableResourceInterface{client.Resource(framework.DeploymentGVR), client.Resource(framework.ConfigMapGVR)} {
			c.insist(func() error {
				err := r.Namespace("default").Delete(c.Context(), name, metav1.DeleteOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		}
		c.Set(at, 0)
		return
	}
	config := newObject("v1", "ConfigMap", name, map[string]any{"data": map[string]any{"replicas": strconv.FormatInt(replicas, 10)}})
	web := newObject("apps/v1", "Deployment", name, map[string]any{"spec": map[string]any{
		"replicas": replicas, "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": name}},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web", "envFrom": []any{
				map[string]any{"configMapRef": map[string]any{"name": name}},
			}}}},
		},
	}})
	c.insist(func() error {
		_, err := client.Resource(framework.ConfigMapGVR).Namespace("default").Apply(c.Context(), name, config, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	})
	c.insist(func() error {
		_, err := client.Resource(framework.DeploymentGVR).Namespace("default").Apply(c.Context(), name, web, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	})
	c.Set(at, replicas)
}

// tamper changes a leaf of a Deployment and one of its ConfigMap, if there are, as a user should not.
func (c *chaos) tamper(client dynamic.Interface, name string) {
	for _, o := range []struct {
		of    schema.GroupVersionResource
		patch string
	}{{framework.DeploymentGVR, `{"spec":{"replicas":50}}`}, {framework.ConfigMapGVR, `{"data":{"replicas":"50"}}`}} {
		_, err := client.Resource(o.of).Namespace("default").Patch(c.Context(), api.LeafName(name, "c1"), types.MergePatchType,
			[]byte(o.patch), metav1.PatchOptions{FieldManager: "e2e"})
		if err == nil {
			c.mu.Lock()
			c.tampered++
			c.mu.Unlock()
		}
	}
}

func newObject(version, kind, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetName(name)
	u.SetNamespace("default")
	return u
}

// insist repeats a request that fails, as a user does while a shard is down.
func (c *chaos) insist(f func() error) {
	deadline := time.Now().Add(framework.Patience)
	for f() != nil && time.Now().Before(deadline) && c.Context().Err() == nil {
		time.Sleep(500 * time.Millisecond)
	}
}

func (c *chaos) Set(at [2]string, replicas int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.want, at); replicas > 0 {
		c.want[at] = replicas
	}
}

// ready compares the condition Ready of a Cluster.
func (c *chaos) ready(name, status, reason string) error {
	o, err := c.Get("root:compute", framework.ClusterGVR, "", name)
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	if !slices.ContainsFunc(all, func(x any) bool {
		m := x.(map[string]any)
		return m["type"] == "Ready" && m["status"] == status && m["reason"] == reason
	}) {
		return fmt.Errorf("Cluster %s: %v", name, all)
	}
	return nil
}
