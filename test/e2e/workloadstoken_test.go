//go:build e2e && long

package e2e

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
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// restOfToken is how long a token is still valid that up has to renew: the last quarter of its life.
const restOfToken = time.Minute

// renewsToken gives the controller a token of its account on c1 in the last quarter of its life. The next up renews it, and when the old one has
// expired, the controller has long used the new one: it was not restarted, and the cluster was ready all the time.
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

// revoked deletes the account of a syncer in its cluster, so that its token is not valid any longer. The cluster is not ready, with the reason, until
// the next up creates the account again. The process of the syncer goes on.
func (w *workloads) revoked(name, process string, on *workloads) {
	w.Helper()
	process = w.setup.name + process
	before := w.ids(w.T)[process]
	require.NotEmpty(w, before)
	require.NoError(w, on.physical.Resource(accountGVR).Namespace(api.NamespaceSyncer).DeleteCollection(
		w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"}))
	began := time.Now()
	w.eventually(func() error {
		if c := w.readiness(name); c.Status != metav1.ConditionFalse || c.Reason != api.ReasonUnauthorized {
			return fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return nil
	})
	w.Logf("%s is not ready %s after its token was revoked", name, time.Since(began).Round(time.Second))
	require.Contains(w, w.readiness(name).Message, "run kcpctl up")
	w.up(w.T)
	w.eventually(func() error {
		if c := w.readiness(name); c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the cluster is %s: %s", c.Reason, c.Message)
		}
		return nil
	})
	w.Logf("%s is ready again after %s", name, time.Since(began).Round(time.Second))
	w.syncs(name, on)
	require.Equal(w, before, w.ids(w.T)[process], "it was not restarted")
}

// syncs requires that a cluster gets a new object.
func (w *workloads) syncs(name string, on *workloads) {
	w.Helper()
	object := "web-" + fmt.Sprint(time.Now().UnixNano())
	w.apply("root:team", configMapGVR, fmt.Sprintf(configMap, object, name, "b"))
	below := func() (found bool) {
		list, err := on.physical.Resource(configMapGVR).List(w.Context(), metav1.ListOptions{LabelSelector: api.LabelSetup})
		require.NoError(w, err)
		for _, o := range list.Items {
			found = found || o.GetName() == object
		}
		return found
	}
	w.eventually(func() error {
		if !below() {
			return fmt.Errorf("ConfigMap %s is not on %s", object, name)
		}
		return nil
	})
	require.NoError(w, w.in("root:team").Resource(configMapGVR).Namespace("default").Delete(w.Context(), object, metav1.DeleteOptions{}))
	w.eventually(func() error {
		if below() {
			return fmt.Errorf("ConfigMap %s is on %s", object, name)
		}
		return nil
	})
}

// readiness returns the condition Ready of a Cluster.
func (w *workloads) readiness(cluster string) metav1.Condition {
	w.Helper()
	o, err := w.get("root:compute", clusterGVR, "", cluster)
	require.NoError(w, err)
	c, err := api.ClusterOf(o)
	require.NoError(w, err)
	ready := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady)
	require.NotNil(w, ready)
	return *ready
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

// aged returns a token like another one, as the API server of c1 would have issued it earlier: with the key that it signs with, which the test has.
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
