package day2

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// physical is a physical cluster without nodes. The test plays its controllers: Deployments become available, and
// namespaces that are deleted go.
type physical struct {
	server     *apiserver.Server
	kubeconfig string
	client     dynamic.Interface
}

// ours selects what syncers have made.
var ours = metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"}

func newPhysical(t *testing.T) *physical {
	t.Helper()
	server, err := apiserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	p := &physical{server: server}
	p.kubeconfig, err = server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	cfg, err := connect.File(p.kubeconfig, "")
	require.NoError(t, err)
	cfg.QPS = -1
	p.client, err = dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	t.Cleanup(func() { cancel(); work.Wait() })
	work.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(300 * time.Millisecond) {
			_ = p.control(ctx) // the API server can be down
		}
	})
	return p
}

// control acts once as the controllers of the cluster.
func (p *physical) control(ctx context.Context) error {
	list, err := p.client.Resource(framework.DeploymentGVR).List(ctx, ours)
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		replicas, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
		ready, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas")
		observed, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
		if ready == replicas && observed == d.GetGeneration() {
			continue
		}
		patch := fmt.Appendf(nil, `{"status":{"replicas":%[1]d,"readyReplicas":%[1]d,"availableReplicas":%[1]d,"updatedReplicas":%[1]d,"observedGeneration":%[2]d}}`,
			replicas, d.GetGeneration())
		_, _ = p.client.Resource(framework.DeploymentGVR).Namespace(d.GetNamespace()).Patch(ctx, d.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if list, err = p.client.Resource(framework.NamespaceGVR).List(ctx, ours); err != nil {
		return err
	}
	for _, ns := range list.Items {
		if ns.GetDeletionTimestamp() != nil {
			unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
			_, _ = p.client.Resource(framework.NamespaceGVR).Update(ctx, &ns, metav1.UpdateOptions{}, "finalize")
		}
	}
	return nil
}
