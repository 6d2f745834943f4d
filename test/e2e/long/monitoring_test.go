package long

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterMonitoring runs a Prometheus beside a setup, as docs/monitoring.md says. Three alerts fire because of real
// faults, and end.
func TestClusterMonitoring(t *testing.T) {
	s := framework.NewCluster(t, "sharded")
	s.Text = strings.NewReplacer("cacheServer: {}", "cacheServer: {etcd: {managed: {storage: 1Gi}}}",
		"- name: alpha\n", "- name: alpha\n    etcd: {managed: {storage: 1Gi, quota: 64Mi}}\n").Replace(s.Text) +
		"  networkPolicies: {metricsClients: {kubernetes.io/metadata.name: " + s.Name + "}}\n" +
		"  monitoring: {rules: true, dashboard: true}\n"
	s.Write(t, s.Text)
	framework.Step(t, "up", func(t *testing.T) { s.Up(t) })
	framework.Step(t, "a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, s) })
	p := startPrometheus(t, s)
	targets := []string{"cache-server", "etcd/alpha", "etcd/beta", "etcd/cache", "etcd/root", "front-proxy/main",
		"root-shard", "shard/alpha", "shard/beta"}
	framework.Step(t, "all components are scraped", func(t *testing.T) { p.scrapes(t, targets...) })
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
	framework.Step(t, "nothing is wrong", func(t *testing.T) {
		for _, name := range []string{"KcpShardDown", "KcpEtcdQuotaNear", "KcpCertificateEnds"} {
			p.ends(t, name, "")
		}
	})
	framework.Step(t, "an etcd is almost full", p.fill)
	framework.Step(t, "a shard is stopped", func(t *testing.T) {
		p.onCluster(t, "scale", "deployment", s.Name+"-shard-beta", "--replicas=0").OK(t)
		p.fires(t, "KcpShardDown", "shard/beta")
	})
	framework.Step(t, "up starts the shard, and issues a certificate that ends soon", func(t *testing.T) {
		s.Edit(t, "  kubeconfigs:\n", "  kubeconfigs:\n  - {name: short, user: short, validity: 4m}\n")
		p.up(t)
		p.ends(t, "KcpShardDown", "shard/beta")
	})
	framework.Step(t, "the etcd is defragmented", p.defragment)
	framework.Step(t, "a certificate is not renewed", func(t *testing.T) {
		p.fires(t, "KcpCertificateEnds", "")
		p.up(t)
		p.ends(t, "KcpCertificateEnds", "")
	})
}

// fill writes to a workspace of the shard alpha until its etcd is almost full, and requires that kcpctl tells it.
func (p *prometheus) fill(t *testing.T) {
	p.CreateWorkspaces(t, "alpha")
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("large ", 150_000)), 0o600))
	n := 0
	for ; p.size(t) < 54<<20; n++ { // of 64 MiB
		require.Less(t, n, 100)
		p.KubectlAs(t, framework.InWorkspace("alpha"), "create", "configmap", fmt.Sprint("large-", n), "--from-file", large).OK(t)
	}
	t.Logf("%d ConfigMaps of 900 kB: %d bytes", n, p.size(t))
	p.fires(t, "KcpEtcdQuotaNear", "etcd/alpha")
	for _, command := range []string{"check", "top", "capacity", "status"} {
		r := p.Kcpctl(t, command)
		t.Logf("%s: exit code %d\n%s%s", r.Line, r.Code, r.Stdout, r.Stderr)
	}
}

// size returns the size of the database of the etcd of the shard alpha.
func (p *prometheus) size(t *testing.T) int64 {
	t.Helper()
	var list struct{ Items []struct{ DBSize int64 } }
	r := p.Kcpctl(t, "etcd", "members", "alpha", "--output", "json").OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	require.Len(t, list.Items, 1)
	return list.Items[0].DBSize
}

// defragment deletes what fill has written, and types what docs/production.md says.
func (p *prometheus) defragment(t *testing.T) {
	p.KubectlAs(t, framework.InWorkspace("alpha"), "delete", "configmaps", "--all").OK(t)
	etcdctl := func(args ...string) string {
		return p.onCluster(t, append([]string{"exec", p.Name + "-etcd-alpha-0", "--", "etcdctl"}, args...)...).OK(t).Stdout
	}
	status := etcdctl("endpoint", "status", "-w", "fields")
	revision := regexp.MustCompile(`"Revision" : ([0-9]+)`).FindStringSubmatch(status)
	require.Len(t, revision, 2, status)
	etcdctl("compact", revision[1])
	etcdctl("defrag", "--command-timeout=5m")
	p.ends(t, "KcpEtcdQuotaNear", "etcd/alpha")
	t.Logf("%d bytes", p.size(t))
	p.BecomesReady(t)
}

// limit is what a value is compared with at the end of the expression of an alert.
var limit = regexp.MustCompile(` (>|==) [0-9.]+$`)

// expressions returns the queries of the dashboard and of the alerts, without their limits.
func (p *prometheus) expressions(t *testing.T) map[string]string {
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
func (p *prometheus) readsOnlyMetrics(t *testing.T) {
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
