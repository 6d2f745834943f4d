package day2

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// guide is one of kcp's production guides, run from the setup file of its example. Only what is not public here
// differs: the issuer, and certificates of others. The host names are those of the example: clients find them with a
// proxy, and pods in the DNS of the cluster.
type guide struct {
	*framework.Authenticated
	// places are where it runs. A guide of one cluster has one.
	places []*framework.Cluster
	names  *framework.Names
}

// issuerURL matches the issuer in an example.
var issuerURL = regexp.MustCompile(`(?m)^( +)issuerURL: .*$`)

// newGuide creates a setup from the example of a guide. elsewhere has the kubeconfigs of its clusters that are not on
// the first node.
func newGuide(t *testing.T, example string, elsewhere map[string]string) *guide {
	t.Helper()
	s, places := newExample(t, example, elsewhere)
	if one, ok := s.Runtime.(*framework.Cluster); ok {
		s.Runtime = &framework.Exposed{Cluster: one}
	}
	g := &guide{&framework.Authenticated{Setup: s, Issuer: framework.StartIssuer(t, places[0].Address(t)), Ca: x509.NewCertPool()}, places, framework.StartNames(t)}
	t.Cleanup(func() { g.resolve(context.Background(), t, nil) })
	s.Env = append(s.Env, g.names.Environment()...)
	g.Via = g.names.Address(t)
	s.Text = issuerURL.ReplaceAllString(s.Text, "${1}issuerURL: "+g.Issuer.URL+"\n${1}ca: "+framework.AsJSON(t, string(g.Issuer.CA)))
	s.Write(t, s.Text)
	return g
}

// resolve lets pods of all places find host names, and no others outside of their cluster.
func (g *guide) resolve(ctx context.Context, t *testing.T, records map[string]string) {
	t.Helper()
	var hosts strings.Builder
	for name, address := range records {
		fmt.Fprintf(&hosts, "%s %s\n", address, name)
	}
	patch := framework.AsJSON(t, map[string]any{"data": map[string]string{"hosts": hosts.String()}})
	for _, c := range g.places {
		c.Kubectl("patch", "configmap", "coredns-hosts", "--namespace", "kube-system", "--type", "merge", "--patch", patch).Run(ctx, t).OK(t)
	}
}

// upWithRecords runs up, and creates the DNS records that it shows while it waits, as a user would. It returns their
// names.
func (g *guide) upWithRecords(t *testing.T) []string {
	t.Helper()
	records := map[string]string{}
	g.Command("up", "--output", "json").Watch(t, func(_ *exec.Cmd, line []byte) {
		var event struct{ Table [][]string }
		require.NoError(t, json.Unmarshal(line, &event))
		if len(event.Table) == 0 || event.Table[0][0] != "NAME" {
			return
		}
		t.Log(string(line))
		for _, row := range event.Table[1:] {
			records[strings.TrimSuffix(row[0], ".")] = row[2]
		}
		g.resolve(t.Context(), t, records)
	}).OK(t)
	return slices.Sorted(maps.Keys(records))
}

// services are the Services of the setup in all places, by their names without that of the setup.
func (g *guide) services(t *testing.T) map[string]corev1.Service {
	t.Helper()
	out := map[string]corev1.Service{}
	for _, c := range g.places {
		var list corev1.ServiceList
		r := c.Kubectl("get", "services", "--namespace", c.Namespace, "--output", "json").Run(t.Context(), t).OK(t)
		require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
		for _, s := range list.Items {
			out[strings.TrimPrefix(s.Name, g.Name+"-")] = s
		}
	}
	return out
}

// balancer returns the address of the load balancer of a Service. It is empty if it has none.
func balancer(s corev1.Service) string {
	for _, i := range s.Status.LoadBalancer.Ingress {
		return i.IP
	}
	return ""
}

// Lead lets clients find the host names of load balancers.
func (g *guide) Lead(t *testing.T, hosts map[string]string) {
	t.Helper()
	all := g.services(t)
	for name, service := range hosts {
		_, port, err := net.SplitHostPort(name)
		require.NoError(t, err)
		require.NotEmpty(t, balancer(all[service]), service)
		g.names.Set(name, net.JoinHostPort(balancer(all[service]), port))
	}
}

// inside lets clients find a Service, as those in the cluster do.
func (g *guide) inside(t *testing.T, services ...string) {
	t.Helper()
	all := g.services(t)
	for _, s := range services {
		host := fmt.Sprintf("%s-%s.%s.svc.cluster.local:6443", g.Name, s, all[s].Namespace)
		g.names.Set(host, net.JoinHostPort(all[s].Spec.ClusterIP, "6443"))
	}
}

// openly are the Services that clients outside of the cluster reach.
func (g *guide) openly(t *testing.T) []string {
	t.Helper()
	var out []string
	for name, s := range g.services(t) {
		if s.Spec.Type != corev1.ServiceTypeClusterIP {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// hasVirtualWorkspaces waits until an APIExport has these URLs of virtual workspaces, which shards publish for its
// providers one after the other, and an administrator can read all workspaces there.
func (g *guide) hasVirtualWorkspaces(t *testing.T, want ...string) {
	t.Helper()
	framework.Eventually(t.Context(), t, func() error {
		out, err := g.Kubectl(t, "get", "apiexportendpointslice", "tenancy.kcp.io", "--output", "jsonpath={.status.endpoints[*].url}").Output()
		if err != nil {
			return err
		}
		urls := strings.Fields(out)
		if slices.Sort(urls); !slices.Equal(urls, want) {
			return fmt.Errorf("the virtual workspaces are %v, not %v", urls, want)
		}
		for _, u := range urls {
			code, body := g.Send(t, http.MethodGet, u+"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces", framework.Request{Certificate: true})
			if code != http.StatusOK || !strings.Contains(string(body), "WorkspaceList") {
				return fmt.Errorf("%s: HTTP %d: %s", u, code, body)
			}
		}
		return nil
	})
}

// access creates a workspace that a group of the issuer may use.
func (g *guide) access(t *testing.T) {
	t.Helper()
	g.Apply(t, framework.TeamManifest, "admin")
	g.Kubectl(t, "wait", "workspace", "team", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	g.Apply(t, framework.AccessManifest, framework.Admin...)
}

// alice is a request of a user of the issuer.
func (g *guide) alice(t *testing.T) framework.Request {
	t.Helper()
	return framework.Request{Token: g.Issuer.Token(t, "1234", map[string]any{"email": "alice@example.com", "groups": []string{"team"}})}
}

// logsIn requires that users of the issuer reach a shard through a front-proxy, with their own name and groups, and
// that a kubeconfig without credentials is enough for them.
func (g *guide) logsIn(t *testing.T, server string) {
	t.Helper()
	var got framework.Identity
	framework.Eventually(t.Context(), t, func() error { // a front-proxy discovers the issuer after it has started
		if got = g.WhoAmI(t, server, framework.Team, g.alice(t)); got.Code != http.StatusCreated {
			return fmt.Errorf("HTTP %d: %s", got.Code, got.Body)
		}
		return nil
	})
	require.Equal(t, "oidc:alice@example.com", got.Name)
	require.ElementsMatch(t, []string{"oidc:team", "system:authenticated"}, got.Groups)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl-oidc_login"), fmt.Appendf(nil, framework.Plugin, dir, g.alice(t).Token), 0o700))
	whoAmI := g.Command("kubeconfig", "--oidc", "--workspace", framework.Team, "--", "kubectl", "auth", "whoami", "--output", "json")
	whoAmI.Env = append(slices.Clone(whoAmI.Env), "PATH="+dir+":"+os.Getenv("PATH"))
	require.Contains(t, whoAmI.Run(t.Context(), t).OK(t).Stdout, "oidc:alice@example.com")
	require.Contains(t, g.Kcpctl(t, "kubeconfig", "--oidc").OK(t).Stdout, "server: "+server)
}

// TestClusterGuideDekker runs examples/dekker.yaml: clients reach the front-proxy only, and shards are private.
func TestClusterGuideDekker(t *testing.T) {
	g := newGuide(t, "dekker", nil)
	const server = "https://api.dekker.example.com:6443"
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up shows the DNS record", func(t *testing.T) {
			r := g.Up(t)
			g.Lead(t, map[string]string{"api.dekker.example.com:6443": "front-proxy-main"})
			require.Regexp(t, `api\.dekker\.example\.com\. +A +`+regexp.QuoteMeta(balancer(g.services(t)["front-proxy-main"])), r.Stderr)
		}},
		{"only the front-proxy is reached from outside", func(t *testing.T) {
			require.Equal(t, []string{"front-proxy-main"}, g.openly(t))
		}},
		{"status", func(t *testing.T) { framework.IsReady(t, g.Setup) }},
		{"checks pass", func(t *testing.T) { g.Check(t, "--wait", "1m").Passes(t) }},
		{"workspaces on every shard", func(t *testing.T) {
			g.inside(t, "root", "shard-alpha") // to read directly from the shards
			g.CreateWorkspaces(t, "root", "alpha")
		}},
		{"virtual workspaces are private", func(t *testing.T) {
			g.Connect(t, "--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root")
			private := fmt.Sprintf(".%s.svc.cluster.local:6443/services/apiexport/root/tenancy.kcp.io", g.places[0].Namespace)
			g.hasVirtualWorkspaces(t, "https://"+g.Name+"-root"+private, "https://"+g.Name+"-shard-alpha"+private)
		}},
		{"users log in", func(t *testing.T) {
			g.access(t)
			g.logsIn(t, server)
		}},
		{"a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, g.Setup) }},
		{"down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, g.Setup) }},
	} {
		framework.Step(t, part.name, part.do)
	}
}
