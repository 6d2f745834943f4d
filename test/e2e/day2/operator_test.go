package day2

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// operated is an installation of kcp as kcp-operator v0.9 lays it out: its objects, with their names, owners and
// finalizers, its certificates, and the flags of its servers (kcp-operator: internal/resources). Everything but the
// objects of its APIs is from this test, which plays kcp-operator and cert-manager. The keys have 2048 bits instead of
// 4096, and the servers have one replica and no requests.
type operated struct {
	*framework.Cluster
	image, etcdImage string
	// root is the authority that has signed the others.
	root, serverCA, clientCA, headerCA, tokenCA, etcdCA *signer
	// owner are the owner references of what belongs to the RootShard.
	owner map[string]map[string]any
}

const (
	operatedHost  = "kcp.example.test"
	operatedRoot  = "main"
	operatedShard = "alpha"
	operatedFront = "edge"
)

// signer is an authority.
type signer struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
	pem  []byte
	// chain is sent after the certificates that the authority signs.
	chain []byte
}

func newSigner(t *testing.T, cn string, by *signer) *signer {
	t.Helper()
	s := &signer{}
	s.cert, s.key, s.pem = issueCert(t, by, &x509.Certificate{
		Subject: pkix.Name{CommonName: cn}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(87600 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
	})
	if by != nil {
		s.chain = s.pem
	}
	return s
}

func issueCert(t *testing.T, by *signer, template *x509.Certificate) (*x509.Certificate, *rsa.PrivateKey, []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template.NotBefore = time.Now().Add(-time.Hour)
	parent, signing := template, key
	if by != nil {
		parent, signing = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signing)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *rsa.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

// secret applies a Secret as cert-manager writes it.
func (o *operated) secret(t *testing.T, name string, cert, key, ca []byte) {
	t.Helper()
	s := framework.Object("v1", "Secret", name)
	s["type"] = "kubernetes.io/tls"
	s["data"] = map[string]any{
		"tls.crt": base64.StdEncoding.EncodeToString(cert), "tls.key": base64.StdEncoding.EncodeToString(key),
		"ca.crt": base64.StdEncoding.EncodeToString(ca),
	}
	o.Apply(t, "cert-manager-certificates-issuing", s)
}

// leaf applies the Secret of a certificate. With hosts it serves, without it is a client's.
func (o *operated) leaf(t *testing.T, by *signer, name, cn string, orgs []string, hosts ...string) (cert, key []byte) {
	t.Helper()
	usage := x509.ExtKeyUsageClientAuth
	if len(hosts) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	_, private, leaf := issueCert(t, by, &x509.Certificate{
		Subject: pkix.Name{CommonName: cn, Organization: orgs}, DNSNames: hosts, NotAfter: time.Now().Add(8760 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
	cert, key = slices.Concat(leaf, by.chain), keyPEM(private)
	o.secret(t, name, cert, key, by.pem)
	return cert, key
}

// authorities applies the authorities: four intermediates under one root, and that of etcd.
func (o *operated) authorities(t *testing.T) {
	o.root = newSigner(t, operatedRoot+"-ca", nil)
	o.secret(t, operatedRoot+"-ca", o.root.pem, keyPEM(o.root.key), o.root.pem)
	for name, to := range map[string]**signer{
		"server-ca": &o.serverCA, "client-ca": &o.clientCA, "requestheader-client-ca": &o.headerCA, "service-account-ca": &o.tokenCA,
	} {
		*to = newSigner(t, operatedRoot+"-"+name, o.root)
		o.secret(t, operatedRoot+"-"+name, (*to).pem, keyPEM((*to).key), o.root.pem)
	}
	o.etcdCA = newSigner(t, "etcd-ca", nil)
	o.leaf(t, o.etcdCA, "etcd-client", "kcp", nil)
}

func (o *operated) host(service string) string { return service + "." + o.Setup + ".svc.cluster.local" }

// kubeconfig applies a Secret with a kubeconfig of a component. Its credential is a certificate below a path.
func (o *operated) kubeconfig(t *testing.T, secret, context, server, ca, credential string) {
	t.Helper()
	s := framework.Object("v1", "Secret", secret)
	s["stringData"] = map[string]any{"kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
contexts: [{name: "%[1]s", context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "%[2]s", certificate-authority: %[3]s}}]
users: [{name: u, user: {client-certificate: %[4]s/tls.crt, client-key: %[4]s/tls.key}}]
`, context, server, ca, credential)}
	o.Apply(t, "kcp-operator", s)
}

// mount is a Secret or a ConfigMap, and where a pod mounts it.
type mount struct{ path, secret, configMap string }

// server applies a Deployment and a Service.
func (o *operated) server(t *testing.T, name, component, image string, command, args []string, probe map[string]any, mounts ...mount) {
	t.Helper()
	var volumes, paths []any
	for i, m := range mounts {
		volume := map[string]any{"name": fmt.Sprintf("v%d", i), "secret": map[string]any{"secretName": m.secret}}
		switch {
		case m.configMap != "":
			volume = map[string]any{"name": fmt.Sprintf("v%d", i), "configMap": map[string]any{"name": m.configMap}}
		case m.secret == "":
			volume = map[string]any{"name": fmt.Sprintf("v%d", i), "emptyDir": map[string]any{}}
		}
		volumes = append(volumes, volume)
		paths = append(paths, map[string]any{"name": fmt.Sprintf("v%d", i), "mountPath": m.path})
	}
	port := 6443
	if component == "etcd" {
		port = 2379
	}
	labels := map[string]any{
		"app.kubernetes.io/name": "kcp", "app.kubernetes.io/instance": name, "app.kubernetes.io/component": component,
		"app.kubernetes.io/managed-by": "kcp-operator",
	}
	if component == "etcd" {
		labels = map[string]any{"app": name}
	}
	d := framework.Object("apps/v1", "Deployment", name)
	d["spec"] = map[string]any{
		"replicas": 1, "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{"volumes": volumes, "containers": []any{map[string]any{
				"name": "kcp", "image": image, "command": command, "args": args, "volumeMounts": paths, "readinessProbe": probe,
				"ports": []any{map[string]any{"name": "https", "containerPort": port}},
			}}},
		},
	}
	s := framework.Object("v1", "Service", name)
	spec := map[string]any{"selector": labels, "ports": []any{map[string]any{"name": "https", "port": port, "targetPort": port}}}
	s["spec"] = spec
	if component == "front-proxy" {
		spec["type"] = "LoadBalancer"
	}
	if owner := o.owner[component]; owner != nil {
		for _, x := range []map[string]any{d, s} {
			x["metadata"].(map[string]any)["ownerReferences"] = []any{owner}
		}
	}
	o.Apply(t, "kcp-operator", s)
	o.Apply(t, "kcp-operator", d)
}

func httpsProbe() map[string]any {
	return map[string]any{"periodSeconds": 2, "failureThreshold": 300, "httpGet": map[string]any{"path": "/readyz", "port": 6443, "scheme": "HTTPS"}}
}

// etcd applies an etcd. kcp-operator runs none: users bring theirs.
func (o *operated) etcd(t *testing.T, name string) {
	t.Helper()
	host := o.host(name)
	o.leaf(t, o.etcdCA, name+"-server", host, nil, host, "localhost")
	o.server(t, name, "etcd", o.etcdImage, []string{"etcd"}, []string{
		"--data-dir=/data/etcd", "--listen-client-urls=https://0.0.0.0:2379", "--advertise-client-urls=https://" + host + ":2379",
		"--cert-file=/tls/tls.crt", "--key-file=/tls/tls.key", "--trusted-ca-file=/tls/ca.crt", "--client-cert-auth",
	}, map[string]any{"tcpSocket": map[string]any{"port": 2379}}, mount{"/tls", name + "-server", ""}, mount{"/data", "", ""})
}

// shard applies a shard: its certificates, kubeconfigs and server.
func (o *operated) shard(t *testing.T, name string) {
	t.Helper()
	root, service, component, cn := name == operatedRoot, name+"-shard-kcp", "shard", "shard-"+name
	if root {
		service, component, cn = name+"-kcp", "rootshard", name
	}
	o.etcd(t, "etcd-"+name)
	o.leaf(t, o.serverCA, name+"-server", "", nil, "localhost", o.host(service), operatedHost)
	o.leaf(t, o.tokenCA, name+"-service-account", name+"-service-account", nil)
	o.leaf(t, o.clientCA, name+"-client", cn, []string{"system:masters"})
	o.leaf(t, o.clientCA, name+"-logical-cluster-admin", "logical-cluster-admin-"+name, []string{"system:kcp:logical-cluster-admin"})
	o.leaf(t, o.clientCA, name+"-external-logical-cluster-admin", "external-logical-cluster-admin-"+name, []string{"system:kcp:external-logical-cluster-admin"})
	o.leaf(t, o.headerCA, name+"-mounts-proxy", "kcp-mounts-proxy", nil)
	base, rootURL := "https://"+o.host(service)+":6443", "https://"+o.host(operatedRoot+"-kcp")+":6443"
	const ca = "/etc/kcp/tls/ca/server/tls.crt"
	o.kubeconfig(t, name+"-logical-cluster-admin-kubeconfig", "base", base, ca, "/etc/kcp/tls/logical-cluster-admin")
	o.kubeconfig(t, name+"-external-logical-cluster-admin-kubeconfig", "base", "https://"+o.host(operatedFront+"-front-proxy")+":6443", ca,
		"/etc/kcp/tls/external-logical-cluster-admin")
	o.kubeconfig(t, name+"-client-kubeconfig", "shard-base", rootURL, ca, "/etc/kcp/tls/client")
	args := strings.Fields(fmt.Sprintf(`--root-ca-file=/etc/kcp/tls/ca/root/tls.crt --client-ca-file=/etc/kcp/tls/ca/client/tls.crt
		--requestheader-client-ca-file=/etc/kcp/tls/ca/requestheader-client/tls.crt
		--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy --requestheader-username-headers=X-Remote-User
		--requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-
		--tls-private-key-file=/etc/kcp/tls/server/tls.key --tls-cert-file=/etc/kcp/tls/server/tls.crt
		--service-account-key-file=/etc/kcp/tls/service-account/tls.crt
		--service-account-private-key-file=/etc/kcp/tls/service-account/tls.key --service-account-lookup=false
		--shard-client-key-file=/etc/kcp/tls/client/tls.key --shard-client-cert-file=/etc/kcp/tls/client/tls.crt
		--shard-base-url=%s --shard-external-url=https://%s:6443
		--logical-cluster-admin-kubeconfig=/etc/kcp/logical-cluster-admin-kubeconfig/kubeconfig
		--external-logical-cluster-admin-kubeconfig=/etc/kcp/external-logical-cluster-admin-kubeconfig/kubeconfig
		--batteries-included=workspace-types --root-directory= --enable-leader-election=true --logging-format=json
		--etcd-servers=https://%s:2379 --etcd-certfile=/etc/etcd/tls/tls.crt --etcd-keyfile=/etc/etcd/tls/tls.key
		--etcd-cafile=/etc/etcd/tls/ca.crt`, base, operatedHost, o.host("etcd-"+name)))
	if !root {
		args = append(args, "--shard-name="+name, "--root-shard-kubeconfig-file=/etc/kcp/client-kubeconfig/kubeconfig",
			"--cache-kubeconfig=/etc/kcp/client-kubeconfig/kubeconfig",
			"--mount-proxy-client-cert-file=/etc/kcp/tls/mounts-proxy/tls.crt", "--mount-proxy-client-key-file=/etc/kcp/tls/mounts-proxy/tls.key")
	}
	mounts := []mount{{"/etc/etcd/tls", "etcd-client", ""}, {"/etc/kcp/tls/ca/root", operatedRoot + "-ca", ""}, {"/tmp", "", ""}}
	for _, ca := range []string{"server", "client", "requestheader-client", "service-account"} {
		mounts = append(mounts, mount{"/etc/kcp/tls/ca/" + ca, operatedRoot + "-" + ca + "-ca", ""})
	}
	for _, cert := range []string{"server", "service-account", "client", "logical-cluster-admin", "external-logical-cluster-admin", "mounts-proxy"} {
		mounts = append(mounts, mount{"/etc/kcp/tls/" + cert, name + "-" + cert, ""})
	}
	for _, k := range []string{"logical-cluster-admin", "external-logical-cluster-admin", "client"} {
		mounts = append(mounts, mount{"/etc/kcp/" + k + "-kubeconfig", name + "-" + k + "-kubeconfig", ""})
	}
	o.server(t, service, component, o.image, []string{"/kcp", "start"}, args, httpsProbe(), mounts...)
}

// frontProxy applies a front-proxy.
func (o *operated) frontProxy(t *testing.T) {
	t.Helper()
	prefix, service := operatedRoot+"-"+operatedFront, operatedFront+"-front-proxy"
	o.leaf(t, o.serverCA, prefix+"-server", "", nil, service, service+"."+o.Setup, o.host(service), operatedHost)
	o.leaf(t, o.clientCA, prefix+"-kubeconfig", "kcp-front-proxy", []string{"system:masters"})
	o.leaf(t, o.headerCA, prefix+"-requestheader", "kcp-front-proxy", nil)
	o.secret(t, operatedFront+"-merged-client-ca", o.clientCA.pem, keyPEM(o.clientCA.key), o.root.pem)
	root := "https://" + o.host(operatedRoot+"-kcp") + ":6443"
	o.kubeconfig(t, prefix+"-dynamic-kubeconfig", "system:admin", root, "/etc/kcp/tls/ca/tls.crt", "/etc/kcp-front-proxy/kubeconfig-client-cert")
	config := framework.Object("v1", "ConfigMap", operatedFront+"-config")
	mapping := ""
	for _, path := range []string{"/services/", "/clusters/"} {
		mapping += fmt.Sprintf("- {path: %s, backend: %q, backend_server_ca: /etc/kcp/tls/ca/tls.crt, "+
			"proxy_client_cert: /etc/kcp-front-proxy/requestheader-client/tls.crt, proxy_client_key: /etc/kcp-front-proxy/requestheader-client/tls.key}\n", path, root)
	}
	config["data"] = map[string]any{"path-mapping.yaml": mapping}
	o.Apply(t, "kcp-operator", config)
	args := strings.Fields(`--secure-port=6443 --root-kubeconfig=/etc/kcp-front-proxy/kubeconfig/kubeconfig
		--shards-kubeconfig=/etc/kcp-front-proxy/kubeconfig/kubeconfig --tls-private-key-file=/etc/kcp-front-proxy/tls/tls.key
		--tls-cert-file=/etc/kcp-front-proxy/tls/tls.crt --mapping-file=/etc/kcp-front-proxy/config/path-mapping.yaml
		--client-ca-file=/etc/kcp-front-proxy/client-ca/tls.crt
		--requestheader-client-ca-file=/etc/kcp/tls/requestheader-client/tls.crt
		--requestheader-allowed-names=kcp-front-proxy,kcp-mounts-proxy --requestheader-username-headers=X-Remote-User
		--requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-`)
	o.server(t, service, "front-proxy", o.image, []string{"/kcp-front-proxy"}, args, httpsProbe(),
		mount{"/etc/kcp-front-proxy/kubeconfig", prefix + "-dynamic-kubeconfig", ""},
		mount{"/etc/kcp-front-proxy/kubeconfig-client-cert", prefix + "-kubeconfig", ""},
		mount{"/etc/kcp-front-proxy/tls", prefix + "-server", ""},
		mount{"/etc/kcp-front-proxy/requestheader-client", prefix + "-requestheader", ""},
		mount{"/etc/kcp/tls/ca", operatedRoot + "-ca", ""},
		mount{"/etc/kcp/tls/requestheader-client", operatedRoot + "-requestheader-client-ca", ""},
		mount{"/etc/kcp-front-proxy/client-ca", operatedFront + "-merged-client-ca", ""},
		mount{"/etc/kcp-front-proxy/config", "", operatedFront + "-config"}, mount{"/.kcp", "", ""}, mount{"/tmp", "", ""})
}
