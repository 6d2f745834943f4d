package physical

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// contextName is the name of the only context, cluster and user of a kubeconfig that Issue writes.
const contextName = "cluster"

// renewBefore is the part of a token's life that is left when it is renewed: a third.
const renewBefore = 3

// Issue returns a kubeconfig with a token of a ServiceAccount (TokenRequest). The API server may limit how long the
// token is valid.
func (c *Client) Issue(ctx context.Context, namespace, account string, validity time.Duration) ([]byte, error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": account},
		"spec": map[string]any{"expirationSeconds": int64(validity / time.Second)},
	}}
	server, err := c.reached()
	if err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	accounts := c.resource(plan.Ref{GroupVersionKind: kind.ServiceAccount.GroupVersionKind, Namespace: namespace})
	out, err := accounts.Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return nil, c.in(fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, account, err))
	}
	token, _, _ := unstructured.NestedString(out.Object, "status", "token")
	if token == "" {
		return nil, c.in(fmt.Errorf("request a token of ServiceAccount %s/%s: the API server has sent none",
			namespace, account))
	}
	return clientcmd.Write(clientcmdapi.Config{
		CurrentContext: contextName,
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: contextName, AuthInfo: contextName}},
		Clusters:       map[string]*clientcmdapi.Cluster{contextName: server},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{contextName: {Token: token}},
	})
}

// Fits reports whether a kubeconfig of Issue can still be used: it leads to this cluster, its token is not about to
// expire, and the ServiceAccount is the same. While the cluster does not answer, the ServiceAccount counts as the same.
func (c *Client) Fits(ctx context.Context, content []byte, namespace, account string) bool {
	have, err := clientcmd.Load(content)
	if err != nil || have.Clusters[contextName] == nil || have.AuthInfos[contextName] == nil {
		return false
	}
	want, err := c.reached()
	if err != nil || !kubeconfig.SameCluster(have.Clusters[contextName], want) {
		return false
	}
	t, err := parseToken(have.AuthInfos[contextName].Token)
	if err != nil || t.due(c.now()) {
		return false
	}
	live, err := c.Object(ctx, plan.Ref{GroupVersionKind: kind.ServiceAccount.GroupVersionKind,
		Namespace: namespace, Name: account})
	return err != nil || live != nil && string(live.GetUID()) == t.Kubernetes.ServiceAccount.UID
}

// reached returns how others reach the API server.
func (c *Client) reached() (*clientcmdapi.Cluster, error) {
	entry := c.cluster.Entry
	if cfg := c.cluster.Config; entry == nil { // in a pod, from its ServiceAccount
		entry = &clientcmdapi.Cluster{
			Server: cfg.Host, TLSServerName: cfg.ServerName, InsecureSkipTLSVerify: cfg.Insecure,
			CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
		}
	}
	out, err := kubeconfig.Portable(entry)
	switch {
	case errors.Is(err, kubeconfig.ErrAnyServer):
		return nil, clierr.New(clierr.Failed,
			"set the certificate authority of the API server in the kubeconfig, and remove insecure-skip-tls-verify",
			"cluster %s: its kubeconfig accepts any server (insecure-skip-tls-verify), and any server at its address "+
				"would get the token", c.cluster.Name)
	case err != nil:
		return nil, clierr.New(clierr.Failed, "correct the kubeconfig of the cluster", "cluster %s: %w",
			c.cluster.Name, err)
	}
	out.Server = cmp.Or(c.server, out.Server)
	return out, nil
}

// token has the claims that kcpctl reads from a token of a ServiceAccount (kubernetes: pkg/serviceaccount/claims.go).
type token struct {
	Expires    int64 `json:"exp"`
	Issued     int64 `json:"iat"`
	Kubernetes struct {
		ServiceAccount struct {
			UID string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

var errToken = errors.New("not a token of a ServiceAccount")

// parseToken reads a token without verifying it: its API server does that.
func parseToken(text string) (token, error) {
	var t token
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return t, errToken
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return t, errToken
	}
	if err := json.Unmarshal(payload, &t); err != nil || t.Expires == 0 {
		return t, errToken
	}
	return t, nil
}

// due reports whether less than a third of the token's life is left.
func (t token) due(now time.Time) bool {
	expires, life := time.Unix(t.Expires, 0), time.Duration(t.Expires-t.Issued)*time.Second
	return expires.Sub(now) < life/renewBefore
}
