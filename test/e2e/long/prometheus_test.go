package long

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// prometheus is a Prometheus in a pod on the cluster of a setup.
type prometheus struct {
	*framework.Setup

	cluster *framework.Cluster
	address string
	// dir has the files that kcpctl has made for it.
	dir string
}

// startPrometheus starts a Prometheus in the namespace of a setup, with the permissions that it needs and no others.
func startPrometheus(t *testing.T, s *framework.Setup) *prometheus {
	t.Helper()
	framework.Command{Name: framework.Given(t, "E2E_TESTBED"), Args: []string{"image", "prometheus"}}.Run(t.Context(), t).OK(t)
	p := &prometheus{Setup: s, cluster: s.Runtime.(*framework.Cluster), dir: t.TempDir()}
	for _, o := range p.cluster.List(t.Context(), t, "secrets,configmaps", "--namespace", s.Name, "--selector", "kcpctl.dev/component=monitoring") {
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		for name, value := range data {
			content := []byte(value)
			if o.GetKind() == "Secret" {
				var err error
				content, err = base64.StdEncoding.DecodeString(value)
				require.NoError(t, err)
			}
			require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), content, 0o600))
		}
	}
	p.hurry(t)
	manifest, err := os.ReadFile("testdata/prometheus.yaml")
	require.NoError(t, err)
	apply := p.cluster.Kubectl("apply", "--server-side", "--namespace", s.Name, "--filename", "-")
	apply.Stdin = strings.ReplaceAll(string(manifest), "NAME", s.Name)
	apply.Run(t.Context(), t).OK(t)
	p.onCluster(t, "wait", "pod/prometheus", "--for=condition=Ready", "--timeout=4m").OK(t)
	p.address = p.onCluster(t, "get", "pod", "prometheus", "--output", "jsonpath={.status.podIP}").OK(t).Stdout + ":9090"
	return p
}

// onCluster runs kubectl in the namespace of the setup.
func (p *prometheus) onCluster(t *testing.T, args ...string) framework.Result {
	t.Helper()
	return p.cluster.Kubectl(append([]string{"--namespace", p.Name}, args...)...).Run(t.Context(), t)
}

// hurry gives the Prometheus the alerts of the setup with a shorter time until they fire. Nothing else differs.
func (p *prometheus) hurry(t *testing.T) {
	t.Helper()
	rules := p.onCluster(t, "get", "configmap", p.Name+"-monitoring-default", "--output", `jsonpath={.data.rules\.yaml}`).OK(t)
	p.cluster.Apply(t, "e2e", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "prometheus-rules"},
		"data": map[string]any{"rules.yaml": regexp.MustCompile(`for: [0-9]+m`).ReplaceAllString(rules.Stdout, "for: 10s")},
	})
}

// up runs kcpctl up, which may write other alerts.
func (p *prometheus) up(t *testing.T) {
	t.Helper()
	p.Up(t)
	p.hurry(t)
}

// get reads the data of an answer of the API.
func (p *prometheus) get(path string, data any) error {
	resp, err := http.Get("http://" + p.address + "/api/v1/" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("HTTP status %d: %w", resp.StatusCode, err)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// query returns the labels of the series of an expression.
func (p *prometheus) query(expr string) ([]map[string]string, error) {
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	err := p.get("query?query="+url.QueryEscape(expr), &data)
	var out []map[string]string
	for _, r := range data.Result {
		out = append(out, r.Metric)
	}
	return out, err
}

// scrapes requires that exactly these components are targets, and answer.
func (p *prometheus) scrapes(t *testing.T, components ...string) {
	framework.Eventually(t.Context(), t, func() error {
		var found []string
		series, err := p.query("up == 1")
		for _, labels := range series {
			found = append(found, labels["kcp_component"])
		}
		slices.Sort(found)
		if err == nil && !slices.Equal(found, components) {
			err = fmt.Errorf("%v answer, and not %v", found, components)
		}
		return err
	})
	series, err := p.query("up")
	require.NoError(t, err)
	require.Len(t, series, len(components))
}

// alert is an alert that is pending or fires.
type alert struct {
	State               string
	Labels, Annotations map[string]string
}

func (p *prometheus) alerts() ([]alert, error) {
	var data struct{ Alerts []alert }
	err := p.get("alerts", &data)
	return data.Alerts, err
}

// firing returns the alert with a name about a component, or any without one, if it fires.
func (p *prometheus) firing(name, component string) (found alert, ok bool, err error) {
	all, err := p.alerts()
	i := slices.IndexFunc(all, func(a alert) bool {
		return a.State == "firing" && a.Labels["alertname"] == name && (component == "" || a.Labels["kcp_component"] == component)
	})
	if i < 0 {
		return alert{}, false, err
	}
	return all[i], true, err
}

// fires waits until an alert fires, and runs the command that it names.
func (p *prometheus) fires(t *testing.T, name, component string) {
	t.Helper()
	began := time.Now()
	var fired alert
	framework.Eventually(t.Context(), t, func() error {
		found, ok, err := p.firing(name, component)
		if err == nil && !ok {
			err = fmt.Errorf("%s does not fire", name)
		}
		fired = found
		return err
	})
	t.Logf("%s fires after %.0f s: %s", name, time.Since(began).Seconds(), fired.Annotations["summary"])
	program, args, _ := strings.Cut(fired.Annotations["runbook"], " ")
	require.Equal(t, "kcpctl", program)
	r := framework.Command{Name: framework.Given(t, "E2E_KCPCTL"), Args: strings.Fields(args)}.Run(t.Context(), t).OK(t)
	require.Contains(t, r.Stdout, "fix: ")
}

// ends waits until an alert no longer fires.
func (p *prometheus) ends(t *testing.T, name, component string) {
	t.Helper()
	began := time.Now()
	framework.Eventually(t.Context(), t, func() error {
		_, ok, err := p.firing(name, component)
		if ok {
			err = fmt.Errorf("%s fires", name)
		}
		return err
	})
	t.Logf("%s ends after %.0f s", name, time.Since(began).Seconds())
}
