//go:build e2e && long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// configMap is a ConfigMap of a cluster.
const configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default, labels: {workloads.kcp.dev/cluster: %s}}, data: {a: %s}}"

// pulled adds another physical cluster, whose syncer is a process of its own with a certificate of its own, uses it,
// and removes it.
func (w *workloads) pulled() {
	w.Helper()
	server, err := apiserver.Start(w.Context())
	require.NoError(w, err)
	w.Cleanup(func() { _ = server.Stop() })
	file, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(w, err)
	cfg, err := connect.File(file, "")
	require.NoError(w, err)
	second := &workloads{T: w.T, setup: w.setup, kcp: w.kcp, server: server}
	second.physical, err = dynamic.NewForConfig(cfg)
	require.NoError(w, err)

	require.Contains(w, w.sub(w.T, "cluster", "add", "c2", "--mode", "pull", "--kubeconfig", file).ok(w.T).stderr, `cluster "c2" is ready`)
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the syncer: %s", w.command("logs", "cluster/c2").run(w.T.Context(), w.T).stdout)
		}
	})
	require.Empty(w, w.kcpctl(w.T, "diff").stdout)
	w.apply("root:team", deploymentGVR, fmt.Sprintf(deployment, "{workloads.kcp.dev/cluster: c2}"))
	w.apply("root:team", configMapGVR, fmt.Sprintf(configMap, "web", "c2", "b"))
	w.apply("root:team", configMapGVR, fmt.Sprintf(configMap, "elsewhere", "c1", "b"))
	var below *unstructured.Unstructured
	w.eventually(func() (err error) { below, err = second.below(deploymentGVR); return err })
	second.statusComesUp(below)
	w.confined()
	w.renewed(second)
	w.revoked("c2", "-syncer-c2", second)

	for _, o := range []struct {
		of   schema.GroupVersionResource
		name string
	}{{deploymentGVR, "web"}, {configMapGVR, "elsewhere"}, {configMapGVR, "web"}} {
		require.NoError(w, w.in("root:team").Resource(o.of).Namespace("default").Delete(w.Context(), o.name, metav1.DeleteOptions{}))
	}
	w.eventually(func() error { return second.nothingIsLeft() })
	w.sub(w.T, "cluster", "remove", "c2", "--yes").ok(w.T)
	require.NotContains(w, w.ids(w.T), w.setup.name+"-syncer-c2")
	w.noReports("c2")
	accounts, err := second.physical.Resource(accountGVR).Namespace("kcpctl-syncer").List(w.Context(), metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"})
	require.NoError(w, err)
	require.Empty(w, accounts.Items, "the account of the syncer is removed")
}

// noReports waits until the ConfigMaps with what a cluster serves are gone.
func (w *workloads) noReports(cluster string) {
	w.Helper()
	w.eventually(func() error {
		list, err := w.in("root:compute").Resource(configMapGVR).Namespace("default").List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "cluster-"+cluster+".") {
				return fmt.Errorf("ConfigMap %s is there", o.GetName())
			}
		}
		return nil
	})
}

// renewed renews the certificate of the syncer, and the process stays the same.
func (w *workloads) renewed(second *workloads) {
	w.Helper()
	certificate := func() string {
		raw, err := os.ReadFile(w.syncerFile("pki", "client", "tls.crt"))
		require.NoError(w, err)
		return string(raw)
	}
	process, before := w.ids(w.T)[w.setup.name+"-syncer-c2"], certificate()
	require.NotEmpty(w, process)
	w.certs(w.T, "renew", "cluster/c2").ok(w.T)
	require.NotEqual(w, before, certificate())
	w.apply("root:team", configMapGVR, fmt.Sprintf(configMap, "web", "c2", "renewed"))
	w.eventually(func() error {
		o, err := second.below(configMapGVR)
		if data := fmt.Sprint(o); err != nil || !strings.Contains(data, "renewed") {
			return fmt.Errorf("%s: %w", data, err)
		}
		return nil
	})
	require.Equal(w, process, w.ids(w.T)[w.setup.name+"-syncer-c2"], "it was not restarted")
}

// syncerFile returns a file that the syncer of cluster c2 reads.
func (w *workloads) syncerFile(path ...string) string {
	w.Helper()
	return filepath.Join(append([]string{w.setup.runtime.(*local).dir, "components", w.setup.name + "-syncer-c2", "config"}, path...)...)
}
