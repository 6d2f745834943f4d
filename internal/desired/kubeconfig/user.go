package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
)

// rootWorkspace is the default workspace of a kubeconfig, and the name of its context.
const rootWorkspace = "root"

// ForUser returns a user's kubeconfig with an embedded certificate. Its contexts are those that kcp's own tools expect:
// the workspace, which is current, and base; for a shard also shard-base and system:admin.
func ForUser(a topology.Access, serverCA []byte, pair pki.Pair) []byte {
	return forUser(a, serverCA, &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key})
}

// loginAPI is the version of the exec API of kubectl and client-go.
const loginAPI = "client.authentication.k8s.io/v1"

// ForLogin returns the kubeconfig of all users of an OpenID Connect issuer. It has no credentials: kubectl gets a token
// from the plugin oidc-login (github.com/int128/kubelogin), which opens a browser.
func ForLogin(a topology.Access, serverCA []byte, l topology.Login) []byte {
	args := []string{"oidc-login", "get-token", "--oidc-issuer-url=" + l.IssuerURL, "--oidc-client-id=" + l.ClientID}
	for _, s := range l.Scopes {
		args = append(args, "--oidc-extra-scope="+s)
	}
	if l.CA != "" {
		args = append(args, "--certificate-authority-data="+base64.StdEncoding.EncodeToString([]byte(l.CA)))
	}
	return forUser(a, serverCA, &api.AuthInfo{Exec: &api.ExecConfig{
		APIVersion: loginAPI, Command: "kubectl", Args: args, InteractiveMode: api.IfAvailableExecInteractiveMode,
		InstallHint: "kubectl needs the plugin oidc-login: kubectl krew install oidc-login, or see " +
			"https://github.com/int128/kubelogin",
	}})
}

func forUser(a topology.Access, serverCA []byte, user *api.AuthInfo) []byte {
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
	bundle := a.Trust().Bundle(func(topology.CA) []byte { return serverCA })
	cfg := api.NewConfig()
	cfg.CurrentContext = workspace
	cfg.AuthInfos[a.User] = user
	for context, url := range servers {
		cfg.Clusters[context] = &api.Cluster{Server: url, CertificateAuthorityData: bundle}
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

// Others returns the contexts of a file that do not lead to the kcp that ForUser or ForLogin has made it for: they are
// lost if the file is replaced. The file does not have to exist.
func Others(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("%s exists, and is not a kubeconfig: %w", path, err)
	}
	base := cfg.Clusters[topology.ContextBase]
	var out []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Contexts)) {
		at := cfg.Clusters[cfg.Contexts[name].Cluster]
		if base == nil || at == nil || !strings.HasPrefix(at.Server+"/", base.Server+"/") {
			out = append(out, name)
		}
	}
	return out, nil
}

// WithTokenFile returns a kubeconfig whose users also have their token in a file in its directory, and the token.
// client-go prefers such a file, and reads it again every minute (client-go: transport/token_source.go).
func WithTokenFile(raw []byte, file string) (config, token []byte, err error) {
	c, err := clientcmd.Load(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("read a kubeconfig: %w", err)
	}
	for _, user := range c.AuthInfos {
		user.TokenFile, token = file, []byte(user.Token)
	}
	config, err = clientcmd.Write(*c)
	return config, token, err
}
