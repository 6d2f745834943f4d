package day2

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// looks are enough for two looks of a syncer for orphans.
const looks = 40 * time.Second

// TestLocalWorkloadsChaos continues TestLocalWorkloadsKills with another shard, two controllers, a syncer that is
// killed at many points, and objects and bindings that are lost.
func TestLocalWorkloadsChaos(t *testing.T) {
	c := newChaos(t)
	stop := c.use()
	for _, shard := range []string{"alpha", "beta"} {
		c.kills(shard)
	}
	stop()
	framework.Step(t, "nothing is lost or doubled", func(*testing.T) { c.Eventually(c.exact) })
	framework.Step(t, "another controller takes over", func(*testing.T) { c.twoControllers() })
	framework.Step(t, "a syncer that is killed at any point", func(*testing.T) { c.killsOfTheSyncer() })
	framework.Step(t, "orphans", func(*testing.T) { c.Orphans() })
	framework.Step(t, "a binding that is lost", func(*testing.T) { c.lostBinding() })
	framework.Step(t, "nothing is left", func(*testing.T) { c.removeAll() })
}

// twoControllers starts another controller by mistake: it waits for the first, and continues its work when that is
// killed.
func (c *chaos) twoControllers() {
	leader := func() (holder string) {
		c.Eventually(func() error {
			lease, err := c.Get("root:compute", heartbeat.Leases, "default", topology.ControllerLease)
			if err == nil {
				holder, _, _ = unstructured.NestedString(lease.Object, "spec", "holderIdentity")
			}
			return err
		})
		return holder
	}
	first := leader()
	c1, err := c.Get("root:compute", framework.ClusterGVR, "", "c1")
	require.NoError(c, err)
	second := exec.Command(os.Getenv("E2E_KCPCTL"), "controller", "--kubeconfig", c.admin, "--apis", "deployments.apps",
		"--setup-id", c1.GetAnnotations()[api.AnnotationSetup])
	require.NoError(c, second.Start())
	defer func() { _ = second.Process.Kill(); _ = second.Wait() }()
	time.Sleep(looks)
	require.Equal(c, first, leader())
	c.kill("controller")
	c.Eventually(func() error {
		if now := leader(); now == first || now == "" {
			return fmt.Errorf("the controller is %q", now)
		}
		return nil
	})
	c.change(c.In("root:team-1"), "root:team-1", "web-0", chaosReplicas+1) // more than it has
	c.Eventually(c.exact)
	_ = second.Process.Kill()
	c.Up(c.T)
	c.change(c.In("root:team-1"), "root:team-1", "web-1", chaosReplicas+1)
	c.Eventually(c.exact)
}

// mine creates a ConfigMap with the label of c2.
func (c *chaos) mine(name string) {
	o := newObject("v1", "ConfigMap", name, map[string]any{"data": map[string]any{"a": "b"}})
	o.SetLabels(map[string]string{api.LabelCluster: "c2"})
	c.insist(func() error {
		_, err := c.In("root:team-0").Resource(framework.ConfigMapGVR).Namespace("default").Apply(c.Context(), name, o, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	})
}

// mineBelow returns the names of these ConfigMaps in c2.
func (c *chaos) mineBelow(prefix string) []string {
	all, err := c.Below("c2")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for at := range maps.Keys(all) {
		if _, name, _ := strings.Cut(at, "/"); strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (c *chaos) is(what string, have, want []string) error {
	if !slices.Equal(have, want) {
		return fmt.Errorf("%s: %v, not %v", what, have, want)
	}
	return nil
}

// killsOfTheSyncer kills the syncer a little later each time, while one object comes and the one before it goes.
func (c *chaos) killsOfTheSyncer() {
	remove := func(name string) {
		c.insist(func() error {
			err := c.In("root:team-0").Resource(framework.ConfigMapGVR).Namespace("default").Delete(c.Context(), name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	const kills = 20
	for i := range kills {
		c.killSyncer()
		c.mine(fmt.Sprintf("kill-%02d", i))
		c.startSyncer()
		time.Sleep(time.Duration(i) * 100 * time.Millisecond)
		if i > 0 {
			remove(fmt.Sprintf("kill-%02d", i-1))
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.killSyncer()
	c.startSyncer()
	last := fmt.Sprintf("kill-%02d", kills-1)
	c.Eventually(func() error { return c.is("below", c.mineBelow("kill-"), []string{last}) })
	remove(last)
	c.Eventually(c.exact)
}

// Orphans removes objects from kcp behind the back of the syncer, as a restored backup does. They are shown, and stay
// in the cluster until a user releases them.
func (c *chaos) Orphans() {
	var names []string
	for i := range 80 {
		names = append(names, fmt.Sprintf("orphan-%02d", i))
		c.mine(names[i])
	}
	c.Eventually(func() error { return c.is("below", c.mineBelow("orphan-"), names) })
	c.killSyncer()
	client := c.In("root:team-0").Resource(framework.ConfigMapGVR).Namespace("default")
	for _, name := range names {
		_, err := client.Patch(c.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(c, err)
		require.NoError(c, client.Delete(c.Context(), name, metav1.DeleteOptions{}))
	}
	c.startSyncer()
	c.Eventually(func() error { return c.ready("c2", "True", api.ReasonOrphans) })
	time.Sleep(looks)
	require.Equal(c, names, c.mineBelow("orphan-"))
	message := fmt.Sprint(c.ready("c2", "", ""))
	require.Contains(c, message, " objects in cluster c2 have no object in kcp")
	_, rest, found := strings.Cut(message, api.AnnotationRemoveOrphans+"=")
	require.True(c, found, message)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationRemoveOrphans, rest[:8])
	_, err := c.In("root:compute").Resource(framework.ClusterGVR).Patch(c.Context(), "c2", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c, err)
	c.Eventually(func() error { return c.is("below", c.mineBelow("orphan-"), nil) })
	c.Eventually(func() error { return c.ready("c2", "True", "Ready") })
}

// lostBinding deletes the APIBindings of c2 on a shard while the controller does not run: the syncer does not see the
// leaves there any longer, and kcp does not give it the URL of the shard.
func (c *chaos) lostBinding() {
	before, err := c.Below("c2")
	require.NoError(c, err)
	c.kill("controller")
	for i := 2; i < chaosWorkspaces; i += 3 {
		r := c.In(fmt.Sprintf("root:team-%d", i)).Resource(kcpapi.APIBinding.GVR())
		list, err := r.List(c.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		for _, b := range list.Items {
			if name, _, _ := unstructured.NestedString(b.Object, "spec", "reference", "export", "name"); name == api.ExportCluster("c2") {
				require.NoError(c, r.Delete(c.Context(), b.GetName(), metav1.DeleteOptions{}))
			}
		}
	}
	time.Sleep(looks)
	after, err := c.Below("c2")
	require.NoError(c, err)
	require.Equal(c, before, after)
	c.killSyncer()
	c.startSyncer() // one that has never seen them
	time.Sleep(looks)
	after, err = c.Below("c2")
	require.NoError(c, err)
	require.Equal(c, before, after)
	c.Up(c.T)
	c.Eventually(c.exact)
	c.Eventually(func() error { return c.ready("c2", "True", "Ready") })
}

// removeAll deletes a workspace, and the objects in the others.
func (c *chaos) removeAll() {
	last := fmt.Sprintf("team-%d", chaosWorkspaces-1)
	require.NoError(c, c.In("root").Resource(kcpapi.Workspace.GVR()).Delete(c.Context(), last, metav1.DeleteOptions{}))
	c.Eventually(func() error {
		_, err := c.Get("root", kcpapi.Workspace.GVR(), "", last)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("workspace %s: %w", last, err)
		}
		return nil
	})
	for i := range chaosWorkspaces - 1 {
		for _, r := range synced {
			client := c.In(fmt.Sprintf("root:team-%d", i)).Resource(r).Namespace("default")
			for k := range chaosObjects {
				if err := client.Delete(c.Context(), fmt.Sprintf("web-%d", k), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
					require.NoError(c, err)
				}
			}
		}
	}
	for _, name := range []string{"c1", "c2"} {
		c.Eventually(func() error { return c.inCluster(name, nil) })
	}
}
