package kubeconfig

import (
	"strings"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// rootWorkspace is the workspace that a kubeconfig shows unless it says another; its context is called so too.
const rootWorkspace = "root"

// ForUser returns a user's kubeconfig with the certificate in it. Its contexts are those that kcp's own tools expect: the
// workspace, which is the current one, and base; for a shard also shard-base and system:admin.
func ForUser(a topology.Access, serverCA []byte, pair pki.Pair) []byte {
	server := strings.TrimSuffix(a.URL, "/")
	workspace := a.Workspace
	if workspace == "" {
		workspace = rootWorkspace
	}
	servers := map[string]string{ContextBase: server, workspace: server + "/clusters/" + workspace}
	if a.Target.Kind() != topology.FrontProxy {
		servers[ContextShardBase] = server
		servers[ContextSystemAdmin] = server + "/clusters/" + ContextSystemAdmin
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
