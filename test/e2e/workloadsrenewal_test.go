//go:build e2e && long && day2

package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
)

// TestLocalWorkloadsTokens runs a controller while the token of a physical cluster is renewed, and while it is revoked.
func TestLocalWorkloadsTokens(t *testing.T) {
	w := newWorkloads(t)
	require.NoError(t, w.isReady("True", "Ready"))
	w.renewsToken()
	w.revoked("c1", "-workloads-controller", w)
}

// restOfToken is how long a token is still valid that up has to renew: the last quarter of its life.
const restOfToken = time.Minute

// renewsToken gives the controller a token of its account on c1 in the last quarter of its life. The next up renews it,
// and when the old one has expired, the controller has long used the new one: it was not restarted, and the cluster was
// ready all the time.
func (w *workloads) renewsToken() {
	w.Helper()
	process, ready := w.ids(w.T)[w.setup.name+"-workloads-controller"], w.readiness("c1")
	require.NotEmpty(w, process)
	expires := time.Now().Add(restOfToken)
	old := w.token(func(token string) string { return w.aged(token, expires) })
	require.Equal(w, old, w.token(nil))
	w.up(w.T)
	require.NotEqual(w, old, w.token(nil), "up renews it")
	renewed := w.token(nil)
	w.up(w.T)
	require.Equal(w, renewed, w.token(nil), "the new one is not due")

	time.Sleep(time.Until(expires.Add(10 * time.Second))) // the API server remembers for ten seconds that a token was valid
	w.syncs("c1", w)
	require.Equal(w, ready, w.readiness("c1"), "it was ready all the time")
	require.Equal(w, process, w.ids(w.T)[w.setup.name+"-workloads-controller"], "it was not restarted")
}

// token returns the token with which the controller reaches c1, after a change. Nil changes nothing.
func (w *workloads) token(change func(string) string) string {
	w.Helper()
	o, err := w.get("root:compute", clusterGVR, "", "c1")
	require.NoError(w, err)
	c, err := api.ClusterOf(o)
	require.NoError(w, err)
	at := c.Spec.KubeconfigSecretRef
	secret, err := w.get("root:compute", secretGVR, at.Namespace, at.Name)
	require.NoError(w, err)
	data := secret.Object["data"].(map[string]any)[api.KeyKubeconfig].(string)
	raw, err := base64.StdEncoding.DecodeString(data)
	require.NoError(w, err)
	kubeconfig, err := clientcmd.Load(raw)
	require.NoError(w, err)
	require.Len(w, kubeconfig.AuthInfos, 1)
	var user *clientcmdapi.AuthInfo
	for _, user = range kubeconfig.AuthInfos {
	}
	if change == nil {
		return user.Token
	}
	user.Token = change(user.Token)
	raw, err = clientcmd.Write(*kubeconfig)
	require.NoError(w, err)
	require.NoError(w, unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString(raw), "data", api.KeyKubeconfig))
	secret.SetManagedFields(nil)
	// As kcpctl does, with all its fields: kcpctl does not overwrite those of others.
	_, err = w.in("root:compute").Resource(secretGVR).Namespace(at.Namespace).Apply(w.Context(), at.Name, secret, metav1.ApplyOptions{FieldManager: kcp.FieldManager})
	require.NoError(w, err)
	return user.Token
}

// aged returns a token like another one, as the API server of c1 would have issued it earlier: with the key that it
// signs with, which the test has.
func (w *workloads) aged(token string, expires time.Time) string {
	w.Helper()
	parts := strings.Split(token, ".")
	require.Len(w, parts, 3)
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(w, err)
	claims := map[string]any{}
	require.NoError(w, json.Unmarshal(payload, &claims))
	issued := expires.Add(-4 * restOfToken).Unix()
	claims["iat"], claims["nbf"], claims["exp"] = issued, issued, expires.Unix()
	payload, err = json.Marshal(claims)
	require.NoError(w, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)

	raw, err := os.ReadFile(filepath.Join(w.server.Dir, "server.key"))
	require.NoError(w, err)
	block, _ := pem.Decode(raw)
	require.NotNil(w, block)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(w, err)
	hash := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	require.NoError(w, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
