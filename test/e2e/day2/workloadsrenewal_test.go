package day2

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
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
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalWorkloadsTokens runs a controller while the token of a physical cluster is renewed, and while it is revoked.
func TestLocalWorkloadsTokens(t *testing.T) {
	w := framework.NewWorkloads(t)
	require.NoError(t, w.IsReady("True", "Ready"))
	// With it the namespace stays, which the API server has no controller to end.
	w.Apply("root:team", framework.ConfigMapGVR, fmt.Sprintf(framework.ConfigMap, "stays", "c1", "b"))
	renewsToken(w)
	w.Revoked("c1", "-workloads-controller", w)
}

// restOfToken is how long a token is still valid that up has to renew: the last quarter of its life.
const restOfToken = time.Minute

// renewsToken gives the controller a token of its account on c1 in the last quarter of its life. The next up renews it,
// and when the old one has expired, the controller has long used the new one: it was not restarted, and the cluster was
// ready all the time.
func renewsToken(w *framework.Workloads) {
	w.Helper()
	process, ready := w.IDs(w.T)[w.Setup.Name+"-workloads-controller"], w.Readiness("c1")
	require.NotEmpty(w, process)
	expires := time.Now().Add(restOfToken)
	old := token(w, func(token string) string { return aged(w, token, expires) })
	require.Equal(w, old, token(w, nil))
	w.Up(w.T)
	require.NotEqual(w, old, token(w, nil), "up renews it")
	renewed := token(w, nil)
	w.Up(w.T)
	require.Equal(w, renewed, token(w, nil), "the new one is not due")

	time.Sleep(time.Until(expires.Add(10 * time.Second))) // the API server remembers for ten seconds that a token was valid
	w.Syncs("c1", w)
	require.Equal(w, ready, w.Readiness("c1"), "it was ready all the time")
	require.Equal(w, process, w.IDs(w.T)[w.Setup.Name+"-workloads-controller"], "it was not restarted")
}

// token returns the token with which the controller reaches c1, after a change. Nil changes nothing.
func token(w *framework.Workloads, change func(string) string) string {
	w.Helper()
	o, err := w.Get("root:compute", framework.ClusterGVR, "", "c1")
	require.NoError(w, err)
	c, err := api.ClusterOf(o)
	require.NoError(w, err)
	at := c.Spec.KubeconfigSecretRef
	secret, err := w.Get("root:compute", framework.SecretGVR, at.Namespace, at.Name)
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
	_, err = w.In("root:compute").Resource(framework.SecretGVR).Namespace(at.Namespace).Apply(w.Context(), at.Name, secret, metav1.ApplyOptions{FieldManager: object.FieldManager})
	require.NoError(w, err)
	return user.Token
}

// aged returns a token like another one, as the API server of c1 would have issued it earlier: with the key that it
// signs with, which the test has.
func aged(w *framework.Workloads, token string, expires time.Time) string {
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

	raw, err := os.ReadFile(filepath.Join(w.Server.Dir, "server.key"))
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
