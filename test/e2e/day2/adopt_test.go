package day2

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
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterAdopt moves an installation of kcp-operator to kcpctl while clients use it with kubeconfigs and a token
// from before. kcp-operator itself is not running, as in step 2 of docs/import.md.
func TestClusterAdopt(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	a := &adoption{Setup: s, operated: &operated{
		Cluster: s.Runtime.(*framework.Cluster), image: "ghcr.io/kcp-dev/kcp:v0.32.3", etcdImage: defaults.EtcdImage,
	}}
	t.Cleanup(func() { a.removeCRDs(t) })
	framework.Step(t, "an installation of kcp-operator", a.install)
	framework.Step(t, "workspaces", a.createContent)
	a.load = startLoad(t, a.kubeconfigs["the server CA"], func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(a.address, "6443"))
	}, true)
	framework.Step(t, "nothing changes", func(t *testing.T) {
		time.Sleep(15 * time.Second)
		a.report(t, 0)
	})
	framework.Step(t, "import --from-cluster and certs import", a.imports)
	framework.Step(t, "up", a.Up)
	framework.Step(t, "everything serves", a.Serves)
	framework.Step(t, "import --finish", a.finish)
	framework.Step(t, "everything serves", a.Serves)
	a.load.Stop()
}

// adoption is an installation of kcp-operator, and the setup that takes it over.
type adoption struct {
	*framework.Setup
	*operated
	// address is that of the Service that clients use.
	address string
	// kubeconfigs are those from before, by what they trust; token is one of a service account.
	kubeconfigs map[string]string
	token       string
	load        *framework.Load
}

// crds installs the APIs of kcp-operator, with any content.
func (a *adoption) crds(t *testing.T) {
	for _, r := range operator.Resources {
		crd := framework.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", r.Name+"."+operator.Group)
		crd["spec"] = map[string]any{
			"group": operator.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": r.Kind, "listKind": r.Kind + "List", "plural": r.Name, "singular": strings.ToLower(r.Kind)},
			"versions": []any{map[string]any{"name": operator.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		}
		a.Apply(t, "kcp-operator", crd)
	}
	a.operated.Kubectl("wait", "crd", "rootshards."+operator.Group, "--for=condition=Established").Run(t.Context(), t).OK(t)
}

// removeCRDs removes the APIs of kcp-operator, with the objects of the test.
func (a *adoption) removeCRDs(t *testing.T) {
	ctx := context.Background()
	for _, o := range a.List(ctx, t, "shards."+operator.Group+",kubeconfigs."+operator.Group, "--namespace", a.operated.Setup) {
		a.operated.Kubectl("patch", strings.ToLower(o.GetKind())+"."+operator.Group, o.GetName(), "--namespace", a.operated.Setup,
			"--type=merge", "--patch", `{"metadata":{"finalizers":null}}`).Run(ctx, t)
	}
	for _, r := range operator.Resources {
		a.operated.Kubectl("delete", "crd", r.Name+"."+operator.Group, "--ignore-not-found", "--timeout=20s").Run(ctx, t)
	}
}

// custom applies an object of kcp-operator's APIs and returns an owner reference to it.
func (a *adoption) custom(t *testing.T, kind, name string, spec map[string]any, finalizers ...string) map[string]any {
	t.Helper()
	o := framework.Object(operator.Group+"/"+operator.Version, kind, name)
	o["spec"], o["metadata"].(map[string]any)["finalizers"] = spec, finalizers
	a.Apply(t, "kubectl", o)
	r := a.operated.Kubectl("get", strings.ToLower(kind), name, "--namespace", a.operated.Setup, "--output", "jsonpath={.metadata.uid}").Run(t.Context(), t).OK(t)
	return map[string]any{
		"apiVersion": operator.Group + "/" + operator.Version, "kind": kind, "name": name, "uid": r.Stdout, "controller": true, "blockOwnerDeletion": true,
	}
}

func (a *adoption) install(t *testing.T) {
	a.MakeNamespace(t)
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
	framework.Eventually(t.Context(), t, func() error {
		get := a.operated.Kubectl("get", "service", operatedFront+"-front-proxy", "--namespace", a.operated.Setup,
			"--output", "jsonpath={.status.loadBalancer.ingress[0].ip}")
		address, err := get.Run(t.Context(), t).Output()
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
		a.operated.Kubectl("rollout", "status", "deployment", d, "--namespace", a.operated.Setup, "--timeout=6m").Run(t.Context(), t).OK(t)
	}
}

// credentials writes kubeconfigs as kcp-operator makes them, and one that trusts the root only.
func (a *adoption) credentials(t *testing.T) {
	cert, key := a.leaf(t, a.clientCA, "kubeconfig-cert-admin", "kcp-admin", []string{"system:kcp:admin", "kubeconfig:admin"})
	a.kubeconfigs = map[string]string{}
	for trust, ca := range map[string][]byte{"the server CA": a.serverCA.pem, "the root": a.root.pem} {
		file := filepath.Join(a.operated.Home, strings.ReplaceAll(trust, " ", "-")+".kubeconfig")
		require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
			CurrentContext: "default", Contexts: map[string]*clientcmdapi.Context{"default": {Cluster: "c", AuthInfo: "u"}},
			Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + operatedHost + ":6443/clusters/root", CertificateAuthorityData: ca}},
			AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: cert, ClientKeyData: key}},
		}, file))
		a.kubeconfigs[trust] = file
	}
}

// kcp runs kubectl in a workspace, with a kubeconfig from before.
func (a *adoption) kcp(t *testing.T, trust, workspace string, args ...string) framework.Command {
	t.Helper()
	return framework.Command{Name: "kubectl", Args: append([]string{
		"--kubeconfig", a.kubeconfigs[trust], "--server", "https://" + a.address + ":6443/clusters/" + workspace, "--tls-server-name", operatedHost,
	}, args...)}
}

// createContent creates workspaces on both shards, with content, and a token of a service account.
func (a *adoption) createContent(t *testing.T) {
	const trust = "the server CA"
	framework.Eventually(t.Context(), t, func() error { // nodes learn of the address, and the front-proxy of the shards
		if r := a.kcp(t, trust, "root", "get", "workspaces").Run(t.Context(), t); r.Code != 0 {
			return fmt.Errorf("%s", r.Stderr)
		}
		return nil
	})
	for _, shard := range []string{"root", "alpha"} {
		create := a.kcp(t, trust, "root", "create", "--filename", "-")
		create.Stdin = fmt.Sprintf(framework.WorkspaceManifest, shard)
		create.Run(t.Context(), t).OK(t)
		a.kcp(t, trust, "root", "wait", "workspace", "on-"+shard, "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").Run(t.Context(), t).OK(t)
		framework.Eventually(t.Context(), t, func() error {
			r := a.kcp(t, trust, "root:on-"+shard, "create", "configmap", "data", "--from-literal=shard="+shard).Run(t.Context(), t)
			if r.Code != 0 && !strings.Contains(r.Stderr, "already exists") {
				return fmt.Errorf("%s", r.Stderr)
			}
			return nil
		})
	}
	create := a.kcp(t, trust, "root:on-alpha", "create", "--filename", "-")
	create.Stdin = robot
	create.Run(t.Context(), t).OK(t)
	a.token = strings.TrimSpace(a.kcp(t, trust, "root:on-alpha", "create", "token", "robot", "--duration=2h").Run(t.Context(), t).OK(t).Stdout)
	framework.Eventually(t.Context(), t, func() error { return a.Reads(t) }) // the role of the account is known after a moment
}

// Reads returns an error unless everything from before is valid: both kubeconfigs and the token.
func (a *adoption) Reads(t *testing.T) error {
	t.Helper()
	read := func(what, shard string, get framework.Command) error {
		got, err := get.Run(t.Context(), t).Output()
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
	withToken.Args[1] = file
	return errors.Join(append(errs, read("the token", "alpha", withToken))...)
}

func (a *adoption) report(t *testing.T, allowed int) {
	t.Helper()
	n := a.load.Take()
	t.Log(n)
	require.NotZero(t, n.Requests)
	require.LessOrEqual(t, n.Failed, allowed, n) // n says which requests failed, when and why
}

func (a *adoption) imports(t *testing.T) {
	require.NoError(t, os.Remove(a.File))
	c := a.Command("import", "--from-cluster", "--name", a.Setup.Name, "--output", a.File)
	c.Args = slices.Delete(c.Args, 1, 3) // --file is for --finish
	r := c.Run(t.Context(), t).OK(t)
	t.Log(r.Stderr)
	for _, said := range []string{"kcpctl certs import --from-cluster", "kcpctl up", "kcpctl import --finish", operatedFront + "-front-proxy"} {
		require.Contains(t, r.Stderr, said)
	}
	raw, err := os.ReadFile(a.File)
	require.NoError(t, err)
	t.Log(string(raw))
	a.Text = string(raw)
	require.Contains(t, a.Text, "prefix: /registry")
	r = a.Certs(t, "import", "--from-cluster").OK(t)
	require.Contains(t, r.Stderr, "server CA, client CA, requestheader CA, service-account key")
	a.Kcpctl(t, "import", "--finish", "--yes").Refused(t, 1, "run kcpctl up -f "+a.File)
	a.report(t, 0)
}

func (a *adoption) Up(t *testing.T) {
	r := a.Kcpctl(t, "up")
	r.Refused(t, 4, "Service/"+a.operated.Setup+"/"+operatedFront+"-front-proxy", "--force-conflicts")
	t.Log(a.Setup.Up(t, "--force-conflicts").Stderr)
	time.Sleep(5 * time.Second)
	a.report(t, 0)
}

func (a *adoption) Serves(t *testing.T) {
	require.NoError(t, a.Reads(t))
	running := a.IDs(t)
	a.Setup.Up(t).Changed(t, 0)
	require.Equal(t, running, a.IDs(t))
	a.BecomesReady(t)
	var shards unstructured.UnstructuredList
	r := a.kcp(t, "the root", "root", "get", "shards", "--output", "json").Run(t.Context(), t).OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &shards))
	require.Len(t, shards.Items, 2)
	a.report(t, 0)
}

func (a *adoption) finish(t *testing.T) {
	require.Contains(t, a.Kcpctl(t, "import", "--finish", "--dry-run").OK(t).Stdout, "- RootShard/")
	t.Log(a.Kcpctl(t, "import", "--finish", "--yes").OK(t).Stderr)
	time.Sleep(20 * time.Second) // the garbage collector deletes, and the leaders change, while clients send requests
	want := []string{            // etcds stay, and the Services that clients use
		"Deployment/etcd-alpha", "Deployment/etcd-main", "Service/alpha-shard-kcp", "Service/edge-front-proxy",
		"Service/etcd-alpha", "Service/etcd-main", "Service/main-kcp",
	}
	framework.Eventually(t.Context(), t, func() error {
		kinds := "deployments,services,rootshards,shards,frontproxies,kubeconfigs"
		all, err := a.TryList(t.Context(), t, kinds, "--namespace", a.operated.Setup)
		var names []string
		for _, o := range all {
			if !strings.HasPrefix(o.GetName(), a.Setup.Name) {
				names = append(names, o.GetKind()+"/"+o.GetName())
			}
		}
		if slices.Sort(names); err == nil && !slices.Equal(names, want) {
			err = fmt.Errorf("left are %v, not %v", names, want)
		}
		return err
	})
	a.Kcpctl(t, "import", "--finish", "--yes").OK(t)
	a.report(t, 0)
}
