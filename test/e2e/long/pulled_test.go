package long

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
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// pulled adds another physical cluster, whose syncer is a process of its own with a certificate of its own, uses it,
// and removes it.
func pulled(w *framework.Workloads) {
	w.Helper()
	server, err := apiserver.Start(w.Context())
	require.NoError(w, err)
	w.Cleanup(func() { _ = server.Stop() })
	file, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(w, err)
	cfg, err := connect.File(file, "")
	require.NoError(w, err)
	second := &framework.Workloads{T: w.T, Setup: w.Setup, Kcp: w.Kcp, Server: server}
	second.Physical, err = dynamic.NewForConfig(cfg)
	require.NoError(w, err)

	require.Contains(w, w.Sub(w.T, "cluster", "add", "c2", "--mode", "pull", "--kubeconfig", file).OK(w.T).Stderr, `cluster "c2" is ready`)
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the syncer: %s", w.Command("logs", "cluster/c2").Run(w.T.Context(), w.T).Stdout)
		}
	})
	require.Empty(w, w.Kcpctl(w.T, "diff").Stdout)
	w.Apply("root:team", framework.DeploymentGVR, fmt.Sprintf(deployment, "{workloads.kcp.dev/cluster: c2}"))
	w.Apply("root:team", framework.ConfigMapGVR, fmt.Sprintf(framework.ConfigMap, "web", "c2", "b"))
	w.Apply("root:team", framework.ConfigMapGVR, fmt.Sprintf(framework.ConfigMap, "elsewhere", "c1", "b"))
	var below *unstructured.Unstructured
	w.Eventually(func() (err error) { below, err = belowWorkloads(second, framework.DeploymentGVR); return err })
	statusComesUp(second, below)
	confined(w)
	renewed(w, second)
	w.Revoked("c2", "-syncer-c2", second)

	for _, o := range []struct {
		of   schema.GroupVersionResource
		name string
	}{{framework.DeploymentGVR, "web"}, {framework.ConfigMapGVR, "elsewhere"}, {framework.ConfigMapGVR, "web"}} {
		require.NoError(w, w.In("root:team").Resource(o.of).Namespace("default").Delete(w.Context(), o.name, metav1.DeleteOptions{}))
	}
	w.Eventually(func() error { return nothingIsLeft(second) })
	w.Sub(w.T, "cluster", "remove", "c2", "--yes").OK(w.T)
	require.NotContains(w, w.IDs(w.T), w.Setup.Name+"-syncer-c2")
	w.NoReports("c2")
	accounts, err := second.Physical.Resource(framework.AccountGVR).Namespace("kcpctl-syncer").List(w.Context(), metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"})
	require.NoError(w, err)
	require.Empty(w, accounts.Items, "the account of the syncer is removed")
}

// renewed renews the certificate of the syncer, and the process stays the same.
func renewed(w *framework.Workloads, second *framework.Workloads) {
	w.Helper()
	certificate := func() string {
		raw, err := os.ReadFile(syncerFile(w, "pki", "client", "tls.crt"))
		require.NoError(w, err)
		return string(raw)
	}
	process, before := w.IDs(w.T)[w.Setup.Name+"-syncer-c2"], certificate()
	require.NotEmpty(w, process)
	w.Certs(w.T, "renew", "cluster/c2").OK(w.T)
	require.NotEqual(w, before, certificate())
	w.Apply("root:team", framework.ConfigMapGVR, fmt.Sprintf(framework.ConfigMap, "web", "c2", "renewed"))
	w.Eventually(func() error {
		o, err := belowWorkloads(second, framework.ConfigMapGVR)
		if data := fmt.Sprint(o); err != nil || !strings.Contains(data, "renewed") {
			return fmt.Errorf("%s: %w", data, err)
		}
		return nil
	})
	require.Equal(w, process, w.IDs(w.T)[w.Setup.Name+"-syncer-c2"], "it was not restarted")
}

// syncerFile returns a file that the syncer of cluster c2 reads.
func syncerFile(w *framework.Workloads, path ...string) string {
	w.Helper()
	return filepath.Join(append([]string{w.Setup.Runtime.(*framework.Local).Dir, "components", w.Setup.Name + "-syncer-c2", "config"}, path...)...)
}
