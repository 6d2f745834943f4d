package kubeconfig

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

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
