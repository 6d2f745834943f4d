//go:build e2e && long && day2

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/desired/operator"
	defaults "github.com/kcpctl/kcpctl/internal/file/setup"
)

// TestClusterAdopt moves an installation of kcp-operator to kcpctl while clients use it with kubeconfigs and a token
// from before. kcp-operator itself is not running, as in step 2 of docs/import.md.
func TestClusterAdopt(t *testing.T) {
	s := newCluster(t, "minimal")
	a := &adoption{setup: s, operated: &operated{
		cluster: s.runtime.(*cluster), image: "ghcr.io/kcp-dev/kcp:v0.32.3", etcdImage: defaults.EtcdImage,
	}}
	t.Cleanup(func() { a.removeCRDs(t) })
	step(t, "an installation of kcp-operator", a.install)
	step(t, "workspaces", a.createContent)
	a.load = startLoad(t, a.kubeconfigs["the server CA"], func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(a.address, "6443"))
	}, true)
	step(t, "nothing changes", func(t *testing.T) {
		time.Sleep(15 * time.Second)
		a.report(t, 0)
	})
	step(t, "import --from-cluster and certs import", a.imports)
	step(t, "up", a.up)
	step(t, "everything serves", a.serves)
	step(t, "import --finish", a.finish)
	step(t, "everything serves", a.serves)
	a.load.stop()
}

// adoption is an installation of kcp-operator, and the setup that takes it over.
type adoption struct {
	*setup
	*operated
	// address is that of the Service that clients use.
	address string
	// kubeconfigs are those from before, by what they trust; token is one of a service account.
	kubeconfigs map[string]string
	token       string
	load        *load
}

// crds installs the APIs of kcp-operator, with any content.
func (a *adoption) crds(t *testing.T) {
	for _, r := range operator.Resources {
		crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", r.Name+"."+operator.Group)
		crd["spec"] = map[string]any{
			"group": operator.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": r.Kind, "listKind": r.Kind + "List", "plural": r.Name, "singular": strings.ToLower(r.Kind)},
			"versions": []any{map[string]any{"name": operator.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		}
		a.apply(t, "kcp-operator", crd)
	}
	a.operated.kubectl("wait", "crd", "rootshards."+operator.Group, "--for=condition=Established").run(t.Context(), t).ok(t)
}

// removeCRDs removes the APIs of kcp-operator, with the objects of the test.
func (a *adoption) removeCRDs(t *testing.T) {
	ctx := context.Background()
	for _, o := range a.list(ctx, t, "shards."+operator.Group+",kubeconfigs."+operator.Group, "--namespace", a.operated.setup) {
		a.operated.kubectl("patch", strings.ToLower(o.GetKind())+"."+operator.Group, o.GetName(), "--namespace", a.operated.setup,
			"--type=merge", "--patch", `{"metadata":{"finalizers":null}}`).run(ctx, t)
	}
	for _, r := range operator.Resources {
		a.operated.kubectl("delete", "crd", r.Name+"."+operator.Group, "--ignore-not-found", "--timeout=20s").run(ctx, t)
	}
}

// custom applies an object of kcp-operator's APIs and returns an owner reference to it.
func (a *adoption) custom(t *testing.T, kind, name string, spec map[string]any, finalizers ...string) map[string]any {
	t.Helper()
	o := object(operator.Group+"/"+operator.Version, kind, name)
	o["spec"], o["metadata"].(map[string]any)["finalizers"] = spec, finalizers
	a.apply(t, "kubectl", o)
	r := a.operated.kubectl("get", strings.ToLower(kind), name, "--namespace", a.operated.setup, "--output", "jsonpath={.metadata.uid}").run(t.Context(), t).ok(t)
	return map[string]any{
		"apiVersion": operator.Group + "/" + operator.Version, "kind": kind, "name": name, "uid": r.stdout, "controller": true, "blockOwnerDeletion": true,
	}
}

func (a *adoption) install(t *testing.T) {
	a.makeNamespace(t)
	a.crds(t)
	etcd := func(shard string) map[string]any {
		return map[string]any{
			"endpoints": []string{"https://" + a.host("etcd-"+shard) + ":2379"},
			"tlsConfig": map[string]any{"secretRef": map[string]any{"name": "etcd-client"}},
		}
	}
	ref := map[string]any{"ref": map[string]any{"name": operatedRoot}}
	external := map[string]any{"hostname": operatedHost, "port": 6443}
	a.owner = map[string]map[string]any{
		"rootshard": a.custom(t, "RootShard", operatedRoot, map[string]any{
			"external": external, "replicas": 1, "etcd": etcd(operatedRoot), "cache": map[string]any{"embedded": map[string]any{"enabled": true}},
			"certificates": map[string]any{"issuerRef": map[string]any{"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "selfsigned"}},
		}),
		"shard": a.custom(t, "Shard", operatedShard, map[string]any{"rootShard": ref, "replicas": 1, "etcd": etcd(operatedShard)},
			"operator.kcp.io/cleanup-shard"),
		"front-proxy": a.custom(t, "FrontProxy", operatedFront, map[string]any{
			"rootShard": ref, "replicas": 1, "external": external, "serviceTemplate": map[string]any{"spec": map[string]any{"type": "LoadBalancer"}},
		}),
	}
	a.custom(t, "Kubeconfig", "admin", map[string]any{
		"username": "kcp-admin", "groups": []string{"system:kcp:admin"}, "validity": "8766h", "secretRef": map[string]any{"name": "admin-kubeconfig"},
		"target": map[string]any{"frontProxyRef": map[string]any{"name": operatedFront}},
	}, "operator.kcp.io/cleanup-rbac")
	a.authorities(t)
	a.operated.shard(t, operatedRoot)
	a.available(t, operatedRoot+"-kcp")
	a.operated.shard(t, operatedShard)
	a.frontProxy(t)
	a.available(t, operatedShard+"-shard-kcp", operatedFront+"-front-proxy")
	eventually(t.Context(), t, func() error {
		get := a.operated.kubectl("get", "service", operatedFront+"-front-proxy", "--namespace", a.operated.setup,
			"--output", "jsonpath={.status.loadBalancer.ingress[0].ip}")
		address, err := get.run(t.Context(), t).output()
		if a.address = address; err == nil && address == "" {
			err = fmt.Errorf("the Service has no address")
		}
		return err
	})
	a.credentials(t)
}

func (a *adoption) available(t *testing.T, deployments ...string) {
	t.Helper()
	for _, d := range deployments {
		a.operated.kubectl("rollout", "status", "deployment", d, "--namespace", a.operated.setup, "--timeout=6m").run(t.Context(), t).ok(t)
	}
}

// credentials writes kubeconfigs as kcp-operator makes them, and one that trusts the root only.
func (a *adoption) credentials(t *testing.T) {
	cert, key := a.leaf(t, a.clientCA, "kubeconfig-cert-admin", "kcp-admin", []string{"system:kcp:admin", "kubeconfig:admin"})
	a.kubeconfigs = map[string]string{}
	for trust, ca := range map[string][]byte{"the server CA": a.serverCA.pem, "the root": a.root.pem} {
		file := filepath.Join(a.operated.home, strings.ReplaceAll(trust, " ", "-")+".kubeconfig")
		require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
			CurrentContext: "default", Contexts: map[string]*clientcmdapi.Context{"default": {Cluster: "c", AuthInfo: "u"}},
			Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + operatedHost + ":6443/clusters/root", CertificateAuthorityData: ca}},
			AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: cert, ClientKeyData: key}},
		}, file))
		a.kubeconfigs[trust] = file
	}
}

// kcp runs kubectl in a workspace, with a kubeconfig from before.
func (a *adoption) kcp(t *testing.T, trust, workspace string, args ...string) command {
	t.Helper()
	return command{name: "kubectl", args: append([]string{
		"--kubeconfig", a.kubeconfigs[trust], "--server", "https://" + a.address + ":6443/clusters/" + workspace, "--tls-server-name", operatedHost,
	}, args...)}
}

// createContent creates workspaces on both shards, with content, and a token of a service account.
func (a *adoption) createContent(t *testing.T) {
	const trust = "the server CA"
	eventually(t.Context(), t, func() error { // nodes learn of the address, and the front-proxy of the shards
		if r := a.kcp(t, trust, "root", "get", "workspaces").run(t.Context(), t); r.code != 0 {
			return fmt.Errorf("%s", r.stderr)
		}
		return nil
	})
	for _, shard := range []string{"root", "alpha"} {
		create := a.kcp(t, trust, "root", "create", "--filename", "-")
		create.stdin = fmt.Sprintf(workspaceManifest, shard)
		create.run(t.Context(), t).ok(t)
		a.kcp(t, trust, "root", "wait", "workspace", "on-"+shard, "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").run(t.Context(), t).ok(t)
		eventually(t.Context(), t, func() error {
			r := a.kcp(t, trust, "root:on-"+shard, "create", "configmap", "data", "--from-literal=shard="+shard).run(t.Context(), t)
			if r.code != 0 && !strings.Contains(r.stderr, "already exists") {
				return fmt.Errorf("%s", r.stderr)
			}
			return nil
		})
	}
	create := a.kcp(t, trust, "root:on-alpha", "create", "--filename", "-")
	create.stdin = robot
	create.run(t.Context(), t).ok(t)
	a.token = strings.TrimSpace(a.kcp(t, trust, "root:on-alpha", "create", "token", "robot", "--duration=2h").run(t.Context(), t).ok(t).stdout)
	eventually(t.Context(), t, func() error { return a.reads(t) }) // the role of the account is known after a moment
}

// reads returns an error unless everything from before is valid: both kubeconfigs and the token.
func (a *adoption) reads(t *testing.T) error {
	t.Helper()
	read := func(what, shard string, get command) error {
		got, err := get.run(t.Context(), t).output()
		if err == nil && got != shard {
			err = fmt.Errorf("%q, not %q", got, shard)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return err
	}
	get := []string{"get", "configmap", "data", "--output", "jsonpath={.data.shard}"}
	var errs []error
	for _, trust := range slices.Sorted(maps.Keys(a.kubeconfigs)) {
		for _, shard := range []string{"root", "alpha"} {
			errs = append(errs, read("who trusts "+trust, shard, a.kcp(t, trust, "root:on-"+shard, get...)))
		}
	}
	config, err := clientcmd.LoadFromFile(a.kubeconfigs["the server CA"])
	require.NoError(t, err)
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: a.token}
	file := filepath.Join(t.TempDir(), "token.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	withToken := a.kcp(t, "", "root:on-alpha", get...)
	withToken.args[1] = file
	return errors.Join(append(errs, read("the token", "alpha", withToken))...)
}

func (a *adoption) report(t *testing.T, allowed int) {
	t.Helper()
	n := a.load.take()
	t.Log(n)
	require.NotZero(t, n.requests)
	require.LessOrEqual(t, n.failed, allowed, n) // n says which requests failed, when and why
}

func (a *adoption) imports(t *testing.T) {
	require.NoError(t, os.Remove(a.file))
	r := a.kcpctl(t, "import", "--from-cluster", "--name", a.setup.name, "--output", a.file).ok(t)
	t.Log(r.stderr)
	for _, said := range []string{"kcpctl certs import --from-cluster", "kcpctl up", "kcpctl import --finish", operatedFront + "-front-proxy"} {
		require.Contains(t, r.stderr, said)
	}
	raw, err := os.ReadFile(a.file)
	require.NoError(t, err)
	t.Log(string(raw))
	a.text = string(raw)
	require.Contains(t, a.text, "prefix: /registry")
	r = a.certs(t, "import", "--from-cluster").ok(t)
	require.Contains(t, r.stderr, "server CA, client CA, requestheader CA, service-account key")
	a.kcpctl(t, "import", "--finish", "--yes").refused(t, 1, "run kcpctl up first")
	a.report(t, 0)
}

func (a *adoption) up(t *testing.T) {
	r := a.kcpctl(t, "up")
	r.refused(t, 4, "Service/"+a.operated.setup+"/"+operatedFront+"-front-proxy", "--force-conflicts")
	t.Log(a.setup.up(t, "--force-conflicts").stderr)
	time.Sleep(5 * time.Second)
	a.report(t, 0)
}

func (a *adoption) serves(t *testing.T) {
	require.NoError(t, a.reads(t))
	running := a.ids(t)
	a.setup.up(t).changed(t, 0)
	require.Equal(t, running, a.ids(t))
	a.becomesReady(t)
	var shards unstructured.UnstructuredList
	r := a.kcp(t, "the root", "root", "get", "shards", "--output", "json").run(t.Context(), t).ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &shards))
	require.Len(t, shards.Items, 2)
	a.report(t, 0)
}

func (a *adoption) finish(t *testing.T) {
	t.Log(a.kcpctl(t, "import", "--finish", "--yes").ok(t).stderr)
	time.Sleep(20 * time.Second) // the garbage collector deletes, and the leaders change, while clients send requests
	want := []string{            // etcds stay, and the Services that clients use
		"Deployment/etcd-alpha", "Deployment/etcd-main", "Service/alpha-shard-kcp", "Service/edge-front-proxy",
		"Service/etcd-alpha", "Service/etcd-main", "Service/main-kcp",
	}
	eventually(t.Context(), t, func() error {
		kinds := "deployments,services,rootshards,shards,frontproxies,kubeconfigs"
		all, err := a.tryList(t.Context(), t, kinds, "--namespace", a.operated.setup)
		var names []string
		for _, o := range all {
			if !strings.HasPrefix(o.GetName(), a.setup.name) {
				names = append(names, o.GetKind()+"/"+o.GetName())
			}
		}
		if slices.Sort(names); err == nil && !slices.Equal(names, want) {
			err = fmt.Errorf("left are %v, not %v", names, want)
		}
		return err
	})
	a.kcpctl(t, "import", "--finish", "--yes").ok(t)
	a.report(t, 0)
}
