package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
)

const (
	// runInterval is the time between two Deployments of a user: one in two seconds in all, which two kubelets on a
	// small machine can start.
	runInterval = 20 * time.Second
	// plain is the number of Deployments that are created in a cluster without kcp.
	plain = 40
)

// measureRunning creates Deployments of one replica in ten workspaces of three shards, over two nodes, and then some in
// one of the nodes itself: the difference is what kcp and the syncer add.
func measureRunning(ctx context.Context, b *bench, runs int) (err error) {
	nodes := map[string]string{}
	for cluster, node := range map[string]string{"c1": "a", "c2": "b"} {
		kubeconfig, release, failed := b.node(ctx, node)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, release()) }()
		if _, err := testbed(ctx, "workload-images", b.kcpctl, "--node", node); err != nil {
			return err
		}
		nodes[cluster] = kubeconfig
	}
	var p50, p99, plain50, plain99 []float64
	for range runs {
		var took, without []float64
		if err := b.inField(ctx, func(f *field) (err error) {
			f.physical, f.image, f.replicas, f.spread, f.arrived = nodes, "kcpctl.dev/testbed/web:v1", 1, 1, isAvailable
			if took, err = f.run(ctx); err != nil {
				return err
			}
			without, err = f.runPlain(ctx, nodes["c1"])
			return err
		}); err != nil {
			return err
		}
		half, last, plainHalf, plainLast := percentile(took, 50), percentile(took, 99), percentile(without, 50), percentile(without, 99)
		b.logf("running: create to available: P50 %.2f s, P99 %.2f s; without kcp %.2f s, %.2f s", half, last, plainHalf, plainLast)
		p50, p99, plain50, plain99 = append(p50, half), append(p99, last), append(plain50, plainHalf), append(plain99, plainLast)
	}
	half := b.report.add("running, create to available without kcp, P50", "s", plain50)
	last := b.report.add("running, create to available without kcp, P99", "s", plain99)
	b.report.add("running, create to available, P50", "s", p50, reference("without kcp", half))
	b.report.add("running, create to available, P99", "s", p99, reference("without kcp", last))
	return nil
}

// isAvailable reports whether the replicas of a Deployment run.
func isAvailable(o *unstructured.Unstructured) bool {
	n, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
	return n > 0
}

// run registers the clusters, and returns the times of Deployments. It removes what they have made in the clusters.
func (f *field) run(ctx context.Context) (took []float64, err error) {
	for _, name := range []string{"c1", "c2"} {
		if _, err := f.register(ctx, name, v1alpha1.SyncModePush); err != nil {
			return nil, err
		}
	}
	if err := f.workspaces(ctx, 0, users); err != nil {
		return nil, err
	}
	took, err = f.deploy(ctx, perUser, runInterval)
	return took, errors.Join(err, f.empty(ctx))
}

// empty deletes the Deployments of all users, and waits until the clusters have none of them.
func (f *field) empty(ctx context.Context) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	for u := range users {
		workspace, err := f.in(fmt.Sprintf("root:team-%d", u))
		if err != nil {
			return err
		}
		selected := metav1.ListOptions{LabelSelector: "!" + api.LabelCluster} // their leaves go with them
		if err := workspace.Resource(deploymentGVR).Namespace("default").DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
			return err
		}
	}
	for name, kubeconfig := range f.physical {
		client, err := clientOf(kubeconfig)
		if err != nil {
			return err
		}
		if err := wait(ctx, "Deployments remain in "+name, func() (bool, error) {
			list, err := client.Resource(api.Namespaces()).List(ctx, metav1.ListOptions{LabelSelector: api.LabelSetup + "," + api.LabelCluster + "=" + name})
			return err == nil && len(list.Items) == 0, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// runPlain creates Deployments in a namespace of a cluster, and returns their times.
func (f *field) runPlain(ctx context.Context, kubeconfig string) (took []float64, err error) {
	client, err := clientOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("kcpctl-bench-%d", os.Getpid())}}}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	if _, err := client.Resource(api.Namespaces()).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := detached(ctx)
		defer cancel()
		err = errors.Join(err, client.Resource(api.Namespaces()).Delete(ctx, ns.GetName(), metav1.DeleteOptions{}))
	}()
	for i := range plain {
		name := fmt.Sprintf("plain-%d", i)
		began := time.Now()
		if _, err := client.Resource(deploymentGVR).Namespace(ns.GetName()).Create(ctx, f.deployment(name), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		if err := wait(ctx, name+" does not run", func() (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.seen[name]) > 0, nil
		}); err != nil {
			return nil, err
		}
		f.mu.Lock()
		took = append(took, f.seen[name]["c1"].Sub(began).Seconds())
		f.mu.Unlock()
		time.Sleep(time.Until(began.Add(runInterval / users)))
	}
	return took, nil
}

func clientOf(kubeconfig string) (dynamic.Interface, error) {
	cfg, err := connect.File(kubeconfig, "")
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(cfg)
}
