package kubeconfig

import (
	"fmt"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// rootWorkspace is the default workspace of a kubeconfig, and the name of its context.
const rootWorkspace = "root"

// ForUser returns a user's kubeconfig with an embedded certificate. Its contexts are those that kcp's own tools expect: the
// workspace, which is current, and base; for a shard also shard-base and system:admin.
func ForUser(a topology.Access, serverCA []byte, pair pki.Pair) []byte {
	server := strings.TrimSuffix(a.URL, "/")
	workspace := a.Workspace
	if workspace == "" {
		workspace = rootWorkspace
	}
	servers := map[string]string{topology.ContextBase: server, workspace: server + "/clusters/" + workspace}
	if a.Target.Kind() != topology.FrontProxy {
		servers[topology.ContextShardBase] = server
		servers[topology.ContextSystemAdmin] = server + "/clusters/" + topology.ContextSystemAdmin
	}
	cfg := api.NewConfig()
	cfg.CurrentContext = workspace
	cfg.AuthInfos[a.User] = &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	for context, url := range servers {
		cfg.Clusters[context] = &api.Cluster{Server: url, CertificateAuthorityData: serverCA}
		cfg.Contexts[context] = &api.Context{Cluster: context, AuthInfo: a.User}
	}
	return encode(cfg)
}

// WithProxy returns a kubeconfig that uses an HTTP proxy for all clusters. It fails if data is not a valid kubeconfig.
func WithProxy(data []byte, proxyURL string) ([]byte, error) {
	cfg, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, c := range cfg.Clusters {
		c.ProxyURL = proxyURL
	}
	return encode(cfg), nil
}

// WriteFile writes a kubeconfig atomically, with mode 0600.
func WriteFile(path string, data []byte) error {
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
