package kubeconfig

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// WithProxy returns a kubeconfig whose servers are reached through an HTTP proxy.
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
