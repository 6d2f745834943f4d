package day2

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

var synced = []schema.GroupVersionResource{framework.DeploymentGVR, framework.ConfigMapGVR}

// census is what should be in the physical clusters, according to the workspaces: by cluster, the text of each object.
type census map[string]map[string]string

func (n census) add(cluster, at, text string) {
	if n[cluster] == nil {
		n[cluster] = map[string]string{}
	}
	n[cluster][at] = text
}

// exact fails unless every root that users have created has exactly its leaves, and every leaf exactly one object
// below, with a truthful status.
func (c *chaos) exact() error {
	compute, err := c.Get("root:compute", framework.ClusterGVR, "", "c1")
	if err != nil {
		return err
	}
	want, problems := census{}, []error{}
	for i := range chaosWorkspaces {
		workspace := fmt.Sprintf("root:team-%d", i)
		if err := c.inWorkspace(workspace, compute.GetAnnotations()[api.AnnotationSetup], want); err != nil {
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

// InWorkspace compares the roots of a workspace with what its user has done, and with their leaves, which it adds to a
// census.
func (c *chaos) inWorkspace(workspace, setup string, all census) error {
	var problems []error
	places := map[string][]string{} // clusters by root
	for _, r := range synced {
		list, err := c.In(workspace).Resource(r).Namespace("default").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		roots, on, replicas := map[string]*unstructured.Unstructured{}, map[string][]string{}, map[string]int64{}
		data := map[string][]any{}
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
				data[root] = append(data[root], o.Object["data"])
				namespace := api.DownstreamNamespace(setup, o.GetAnnotations()["kcp.io/cluster"], "default")
				all.add(cluster, r.Resource+" "+namespace+"/"+root, fmt.Sprint(n, o.Object["data"]))
			}
		}
		if r == framework.DeploymentGVR {
			places = on
			if err := c.deployments(workspace, roots, replicas); err != nil {
				problems = append(problems, err)
			}
		}
		for name, o := range roots {
			for _, is := range data[name] {
				if !reflect.DeepEqual(is, o.Object["data"]) {
					problems = append(problems, fmt.Errorf("%s %s of %s has %v, its leaf %v", r.Resource, name, workspace, o.Object["data"], is))
				}
			}
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
	have, err := c.Below(name)
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
	list, err := c.clusters[name].client.Resource(framework.NamespaceGVR).List(c.Context(), ours)
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

// Below returns the objects that syncers have made in a physical cluster.
func (c *chaos) Below(name string) (map[string]string, error) {
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
