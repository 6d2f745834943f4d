// Package connect reads kubeconfigs of kcp and of physical clusters.
package connect

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// File returns the connection that the kubeconfig in a file describes. Without a path, it uses KUBECONFIG,
// ~/.kube/config or the pod. An empty context is the current one.
func File(path, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context})
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, clierr.New(clierr.BadInput, "specify the path of a kubeconfig, and a context that it has",
			"read the kubeconfig: %w", err)
	}
	return cfg, nil
}

// KCP returns the connection to kcp that a kubeconfig describes. The workspace in its URL is left out.
func KCP(path, context string) (*rest.Config, error) {
	cfg, err := File(path, context)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, clierr.New(clierr.BadInput, "specify a kubeconfig of kcp",
			"the server of the kubeconfig is not a URL: %w", err)
	}
	u.Path, _, _ = strings.Cut(u.Path, "/clusters/")
	cfg.Host = u.String()
	return cfg, nil
}

// Workspace returns the connection to a workspace of kcp.
func Workspace(kcp *rest.Config, path string) *rest.Config {
	out := rest.CopyConfig(kcp)
	out.Host = strings.TrimRight(out.Host, "/") + "/clusters/" + path
	return out
}

// errReference means that a kubeconfig needs something on the machine that uses it.
var errReference = errors.New("the kubeconfig runs a program or reads a file: use credentials that it " +
	"contains, such as a token")

// Content returns the connection that the content of a kubeconfig describes. It must not run programs or read files:
// the content was written by a client of an API server, and is used by another user on another machine.
func Content(raw []byte) (*rest.Config, error) {
	c, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, user := range c.AuthInfos {
		if refers(user) {
			return nil, errReference
		}
	}
	for _, server := range c.Clusters {
		if server.CertificateAuthority != "" {
			return nil, errReference
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*c, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return cfg, nil
}

func refers(u *api.AuthInfo) bool {
	return u.Exec != nil || u.AuthProvider != nil || u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != ""
}
