//go:build e2e && long && day2

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/kcpapi"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// looks are enough for two looks of a syncer for orphans.
const looks = 40 * time.Second

var synced = []schema.GroupVersionResource{deploymentGVR, configMapGVR}

// census is what should be in the physical clusters, according to the workspaces: by cluster, the text of each object.
type census map[string]map[string]string

func (n census) add(cluster, at, text string) {
	if n[cluster] == nil {
		n[cluster] = map[string]string{}
	}
	n[cluster][at] = text
}

// exact fails unless every root that users have created has exactly its leaves, and every leaf exactly one object below, with a truthful
// status.
func (c *chaos) exact() error {
	compute, err := c.get("root:compute", clusterGVR, "", "c1")
	if err != nil {
		return err
	}
	want, problems := census{}, []error{}
	for i := range chaosWorkspaces {
		workspace := fmt.Sprintf("root:team-%d", i)
		if err := c.inWorkspace(workspace, compute.GetAnnotations()["kcp.io/cluster"], want); err != nil {
			problems = append(problems, err)
		}
	}
	for name := range c.clusters {
		if err := c.inCluster(name, want[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems[:min(len(problems), 5)]...)
}

// inWorkspace compares the roots of a workspace with what its user has done, and with their leaves, which it adds to a census.
func (c *chaos) inWorkspace(workspace, setup string, all census) error {
	var problems []error
	places := map[string][]string{} // clusters by root
	for _, r := range synced {
		list, err := c.in(workspace).Resource(r).Namespace("default").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		roots, on, replicas := map[string]*unstructured.Unstructured{}, map[string][]string{}, map[string]int64{}
		for _, o := range list.Items {
			cluster, root := o.GetLabels()[api.LabelCluster], o.GetAnnotations()[api.AnnotationName]
			switch {
			case cluster == "" && strings.HasPrefix(o.GetName(), "web-"):
				roots[o.GetName()] = &o
			case cluster != "" && o.GetDeletionTimestamp() != nil:
				problems = append(problems, fmt.Errorf("%s %s of %s is being deleted", r.Resource, o.GetName(), workspace))
			case cluster != "":
				on[root] = append(on[root], cluster)
				n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
				replicas[root] += n
				namespace := api.DownstreamNamespace(setup, o.GetAnnotations()["kcp.io/cluster"], "default")
				all.add(cluster, r.Resource+" "+namespace+"/"+root, fmt.Sprint(n, o.Object["data"]))
			}
		}
		if r == deploymentGVR {
			places = on
			if err := c.deployments(workspace, roots, replicas); err != nil {
				problems = append(problems, err)
			}
		}
		for name := range roots {
			slices.Sort(on[name])
			if slices.Sort(places[name]); !slices.Equal(on[name], places[name]) {
				problems = append(problems, fmt.Errorf("%s %s of %s is on %v, its Deployment on %v", r.Resource, name, workspace, on[name], places[name]))
			}
		}
		for name := range on {
			if roots[name] == nil {
				problems = append(problems, fmt.Errorf("%s of %s: there are leaves of %q, which does not exist", r.Resource, workspace, name))
			}
		}
	}
	return errors.Join(problems...)
}

// deployments compares Deployments with what users have done, and their status with their leaves.
func (c *chaos) deployments(workspace string, roots map[string]*unstructured.Unstructured, replicas map[string]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, n := range c.want {
		if at[0] != workspace {
			continue
		}
		o := roots[at[1]]
		if o == nil {
			return fmt.Errorf("Deployment %s of %s is lost", at[1], workspace)
		}
		ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		if replicas[at[1]] != n || ready != n || observed != o.GetGeneration() {
			return fmt.Errorf("Deployment %s of %s: %d replicas, %d in leaves, generation %d, status %v", at[1], workspace, n, replicas[at[1]], o.GetGeneration(), o.Object["status"])
		}
	}
	for name := range roots {
		if c.want[[2]string{workspace, name}] == 0 {
			return fmt.Errorf("Deployment %s of %s was deleted", name, workspace)
		}
	}
	return nil
}

// inCluster compares the objects in a physical cluster with a census, and its namespaces with theirs.
func (c *chaos) inCluster(name string, want map[string]string) error {
	have, err := c.below(name)
	if err != nil {
		return err
	}
	spaces := map[string]bool{}
	for at, text := range want {
		namespace, _, _ := strings.Cut(strings.SplitN(at, " ", 2)[1], "/")
		if spaces[namespace] = true; have[at] != text {
			return fmt.Errorf("%s in %s is %q, its leaf %q", at, name, have[at], text)
		}
	}
	for at := range have {
		if _, ok := want[at]; !ok {
			return fmt.Errorf("%s in %s has no leaf", at, name)
		}
	}
	list, err := c.clusters[name].client.Resource(namespaceGVR).List(c.Context(), ours)
	if err != nil {
		return err
	}
	for _, ns := range list.Items {
		if !spaces[ns.GetName()] {
			return fmt.Errorf("namespace %s in %s has no objects", ns.GetName(), name)
		}
	}
	return nil
}

// below returns the objects that syncers have made in a physical cluster.
func (c *chaos) below(name string) (map[string]string, error) {
	out := map[string]string{}
	for _, r := range synced {
		list, err := c.clusters[name].client.Resource(r).List(c.Context(), ours)
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
			out[r.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = fmt.Sprint(n, o.Object["data"])
		}
	}
	return out, nil
}

// mine creates a ConfigMap with the label of c2.
func (c *chaos) mine(name string) {
	o := newObject("v1", "ConfigMap", name, map[string]any{"data": map[string]any{"a": "b"}})
	o.SetLabels(map[string]string{api.LabelCluster: "c2"})
	c.insist(func() error {
		_, err := c.in("root:team-0").Resource(configMapGVR).Namespace("default").Apply(c.Context(), name, o, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	})
}

// mineBelow returns the names of these ConfigMaps in c2.
func (c *chaos) mineBelow(prefix string) []string {
	all, err := c.below("c2")
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
			err := c.in("root:team-0").Resource(configMapGVR).Namespace("default").Delete(c.Context(), name, metav1.DeleteOptions{})
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
	c.eventually(func() error { return c.is("below", c.mineBelow("kill-"), []string{last}) })
	remove(last)
	c.eventually(c.exact)
}

// orphans removes objects from kcp behind the back of the syncer, as a restored backup does. They stay in the cluster until a user
// releases them.
func (c *chaos) orphans() {
	var names []string
	for i := range 80 {
		names = append(names, fmt.Sprintf("orphan-%02d", i))
		c.mine(names[i])
	}
	c.eventually(func() error { return c.is("below", c.mineBelow("orphan-"), names) })
	c.killSyncer()
	client := c.in("root:team-0").Resource(configMapGVR).Namespace("default")
	for _, name := range names {
		_, err := client.Patch(c.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(c, err)
		require.NoError(c, client.Delete(c.Context(), name, metav1.DeleteOptions{}))
	}
	c.startSyncer()
	c.eventually(func() error { return c.ready("c2", "True", "TooManyOrphans") })
	time.Sleep(looks)
	require.Equal(c, names, c.mineBelow("orphan-"))
	message := fmt.Sprint(c.ready("c2", "", ""))
	require.Contains(c, message, "80 of ")
	_, rest, found := strings.Cut(message, api.AnnotationRemoveOrphans+"=")
	require.True(c, found, message)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationRemoveOrphans, rest[:8])
	_, err := c.in("root:compute").Resource(clusterGVR).Patch(c.Context(), "c2", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c, err)
	c.eventually(func() error { return c.is("below", c.mineBelow("orphan-"), nil) })
	c.eventually(func() error { return c.ready("c2", "True", "Ready") })
}

// lostBinding deletes the APIBindings of c2 on a shard while the controller does not run: the syncer does not see the leaves there any
// longer, and kcp does not give it the URL of the shard.
func (c *chaos) lostBinding() {
	before, err := c.below("c2")
	require.NoError(c, err)
	c.kill("controller")
	for i := 2; i < chaosWorkspaces; i += 3 {
		r := c.in(fmt.Sprintf("root:team-%d", i)).Resource(kcpapi.APIBinding.GVR())
		list, err := r.List(c.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		for _, b := range list.Items {
			if name, _, _ := unstructured.NestedString(b.Object, "spec", "reference", "export", "name"); name == api.ExportCluster("c2") {
				require.NoError(c, r.Delete(c.Context(), b.GetName(), metav1.DeleteOptions{}))
			}
		}
	}
	time.Sleep(looks)
	after, err := c.below("c2")
	require.NoError(c, err)
	require.Equal(c, before, after)
	c.killSyncer()
	c.startSyncer() // one that has never seen them
	time.Sleep(looks)
	after, err = c.below("c2")
	require.NoError(c, err)
	require.Equal(c, before, after)
	c.up(c.T)
	c.eventually(c.exact)
	c.eventually(func() error { return c.ready("c2", "True", "Ready") })
}

// removeAll deletes a workspace, and the objects in the others.
func (c *chaos) removeAll() {
	last := fmt.Sprintf("team-%d", chaosWorkspaces-1)
	require.NoError(c, c.in("root").Resource(kcpapi.Workspace.GVR()).Delete(c.Context(), last, metav1.DeleteOptions{}))
	c.eventually(func() error {
		_, err := c.get("root", kcpapi.Workspace.GVR(), "", last)
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("workspace %s: %w", last, err)
		}
		return nil
	})
	for i := range chaosWorkspaces - 1 {
		for _, r := range synced {
			client := c.in(fmt.Sprintf("root:team-%d", i)).Resource(r).Namespace("default")
			for k := range chaosObjects {
				if err := client.Delete(c.Context(), fmt.Sprintf("web-%d", k), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
					require.NoError(c, err)
				}
			}
		}
	}
	for name := range c.clusters {
		c.eventually(func() error { return c.inCluster(name, nil) })
	}
}
