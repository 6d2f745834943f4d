package long

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterMonitoring runs a Prometheus with the configuration of a setup, on the machine of the node.
func TestClusterMonitoring(t *testing.T) {
	s := framework.NewCluster(t, "sharded")
	s.Write(t, strings.Replace(s.Text, "cacheServer: {}", "cacheServer: {etcd: {managed: {storage: 1Gi}}}", 1)+
		"  networkPolicies: {metricsClients: {kubernetes.io/metadata.name: monitoring}}\n  monitoring: {rules: true, dashboard: true}\n")
	framework.Step(t, "up", func(t *testing.T) { s.Up(t) })
	framework.Step(t, "a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, s) })
	p := startPrometheus(t, s)
	targets := []string{"cache-server", "etcd/alpha", "etcd/beta", "etcd/cache", "etcd/root", "front-proxy/main",
		"root-shard", "shard/alpha", "shard/beta"}
	framework.Step(t, "all components are scraped", func(t *testing.T) {
		framework.Eventually(t.Context(), t, func() error {
			up, err := p.query(`up == 1`)
			if err == nil && len(up) != len(targets) {
				err = fmt.Errorf("%d of %d targets answer: %v", len(up), len(targets), up)
			}
			return err
		})
		up, err := p.query("up")
		require.NoError(t, err)
		var found []string
		for _, labels := range up {
			found = append(found, labels["kcp_component"])
		}
		require.ElementsMatch(t, targets, found)
	})
	s.Kubectl(t, "create", "clusterrole", "seen", "--verb=get", "--resource=configmaps").OK(t) // a write
	for name, expr := range p.expressions(t) {
		framework.Step(t, name, func(t *testing.T) {
			framework.Eventually(t.Context(), t, func() error {
				series, err := p.query(expr)
				if err == nil && len(series) == 0 {
					err = fmt.Errorf("no series: %s", expr)
				}
				return err
			})
		})
	}
	framework.Step(t, "a shard has few series", func(t *testing.T) {
		for _, c := range targets {
			series, err := p.query(`{kcp_component="` + c + `"}`)
			require.NoError(t, err)
			t.Logf("%s has %d series", c, len(series))
			require.Less(t, len(series), 2000, c)
		}
	})
	framework.Step(t, "the certificate is for metrics only", p.readsOnlyMetrics)
}

// prometheus is a Prometheus that runs.
type prometheus struct{ dir, address string }

// startPrometheus starts a Prometheus with what a setup has for it.
func startPrometheus(t *testing.T, s *framework.Setup) prometheus {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	require.NoError(t, err, "bin/testbed packages prometheus installs it")
	c := s.Runtime.(*framework.Cluster)
	p := prometheus{dir: t.TempDir(), address: "127.0.0.1:" + freePorts(t, 1)[0]}
	for _, o := range c.List(t.Context(), t, "secrets,configmaps", "--namespace", s.Name, "--selector", "kcpctl.dev/component=monitoring") {
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		for name, value := range data {
			content := []byte(value)
			if o.GetKind() == "Secret" {
				content, err = base64.StdEncoding.DecodeString(value)
				require.NoError(t, err)
			}
			require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), content, 0o600))
		}
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, "scrape.yaml"))
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &config))
	for _, job := range config["scrape_configs"].([]any) { // the Prometheus of Debian discovers no pods
		delete(job.(map[string]any), "kubernetes_sd_configs")
		job.(map[string]any)["static_configs"] = discovered(t, c)
	}
	config["global"], config["rule_files"] = map[string]any{"scrape_interval": "15s"}, []string{"rules.yaml"}
	raw, err = yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "prometheus.yml"), raw, 0o600))

	cmd := exec.Command(binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+p.address)
	cmd.Dir = p.dir
	log, err := os.Create(filepath.Join(p.dir, "log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the log of Prometheus:\n%s", text)
		}
	})
	return p
}

// discovered returns the ports of the pods of a setup with the labels that kubernetes_sd_configs give them.
func discovered(t *testing.T, c *framework.Cluster) (targets []map[string]any) {
	t.Helper()
	for _, o := range c.List(t.Context(), t, "pods", "--namespace", c.Namespace, "--selector", "kcpctl.dev/setup="+c.Setup) {
		var pod corev1.Pod
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod))
		for _, port := range pod.Spec.Containers[0].Ports {
			labels := map[string]string{
				"__meta_kubernetes_namespace": pod.Namespace, "__meta_kubernetes_pod_name": pod.Name,
				"__meta_kubernetes_pod_phase": string(pod.Status.Phase), "__meta_kubernetes_pod_container_port_name": port.Name,
			}
			for name, value := range pod.Labels {
				labels["__meta_kubernetes_pod_label_"+regexp.MustCompile(`[^a-zA-Z0-9]`).ReplaceAllString(name, "_")] = value
			}
			targets = append(targets, map[string]any{"targets": []string{fmt.Sprintf("%s:%d", pod.Status.PodIP, port.ContainerPort)}, "labels": labels})
		}
	}
	return targets
}

// query returns the labels of the series of an expression.
func (p prometheus) query(expr string) ([]map[string]string, error) {
	resp, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("HTTP status %d: %w", resp.StatusCode, err)
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	var out []map[string]string
	for _, r := range answer.Data.Result {
		out = append(out, r.Metric)
	}
	return out, nil
}

// limit is what a value is compared with at the end of the expression of an alert.
var limit = regexp.MustCompile(` (>|==) [0-9.]+$`)

// expressions returns the queries of the dashboard and of the alerts, without their limits.
func (p prometheus) expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, "rules.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &rules))
	for _, r := range rules.Groups[0].Rules {
		// The node has no kube-state-metrics, and something is monitored.
		if r.Alert != "KcpMemoryNearLimit" && r.Alert != "KcpNotMonitored" {
			out["alert "+r.Alert] = limit.ReplaceAllString(r.Expr, "")
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	raw, err = os.ReadFile(filepath.Join(p.dir, "dashboard.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &dashboard))
	for _, panel := range dashboard.Panels {
		out["panel "+panel.Title] = strings.ReplaceAll(panel.Targets[0].Expr, "$__rate_interval", "1m")
	}
	require.Greater(t, len(out), 20)
	return out
}

// readsOnlyMetrics requires that shards let the user of Prometheus read metrics, and refuse all of its other requests.
// Without its certificate, they also refuse metrics.
func (p prometheus) readsOnlyMetrics(t *testing.T) {
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(p.dir, "ca.crt"))
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(ca))
	pair, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "tls.crt"), filepath.Join(p.dir, "tls.key"))
	require.NoError(t, err)
	get := func(address, path string, certs ...tls.Certificate) int {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, ServerName: "localhost", Certificates: certs,
		}}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("https://" + address + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	up, err := p.query(`up{kcp_component=~"root-shard|shard/.+"}`)
	require.NoError(t, err)
	require.Len(t, up, 3)
	for _, labels := range up {
		at := labels["instance"]
		require.Equal(t, http.StatusOK, get(at, "/metrics", pair))
		require.NotEqual(t, http.StatusOK, get(at, "/metrics"))
		for _, path := range []string{"/clusters/root/api/v1/secrets", "/clusters/system:admin/api/v1/secrets", "/debug/pprof/"} {
			require.Equal(t, http.StatusForbidden, get(at, path, pair), "%s of %s", path, labels["kcp_component"])
		}
	}
}

// The scrape configuration and the alerts of the golden file are what Prometheus reads, and alerts fire when they should.
func TestAlerts(t *testing.T) {
	golden, err := os.ReadFile("../../../internal/desired/render/testdata/monitoring-plain.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, document := range strings.Split(string(golden), "\n---\n") {
		var o struct{ Data map[string]string } // a golden file has Secrets as text
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		for name, content := range o.Data {
			if name == "scrape.yaml" {
				content = withoutDiscovery(t, content)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	tests, err := os.ReadFile("testdata/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), tests, 0o600))
	for _, args := range [][]string{
		{"check", "config", "scrape.yaml"}, {"check", "rules", "rules.yaml"}, {"test", "rules", "alerts.yaml"},
	} {
		cmd := exec.Command("promtool", args...) // bin/testbed packages prometheus installs it
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// withoutDiscovery returns a scrape configuration without the discovery of pods, which the Prometheus of Debian lacks.
func withoutDiscovery(t *testing.T, content string) string {
	t.Helper()
	var config map[string][]map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(content), &config))
	for _, job := range config["scrape_configs"] {
		require.NotEmpty(t, job["kubernetes_sd_configs"])
		delete(job, "kubernetes_sd_configs")
	}
	out, err := yaml.Marshal(config)
	require.NoError(t, err)
	return string(out)
}
