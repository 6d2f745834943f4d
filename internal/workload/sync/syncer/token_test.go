package syncer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// A cluster deletes a Secret with a token for a ServiceAccount that it does not have. It fills in the Secret itself, and
// the syncer does not change that.
func TestATokenComesAfterItsAccount(t *testing.T) {
	s := newSides(t)
	s.bind("1a")
	s.kcp.Apply(t, "1a", "api/v1/secrets", `
apiVersion: v1
kind: Secret
type: `+api.SecretTypeToken+`
metadata: {name: token--c1, namespace: shop, labels: {workloads.kcp.dev/cluster: c1},
  annotations: {workloads.kcp.dev/name: token, kubernetes.io/service-account.name: web}}`)
	s.start()
	s.eventually(func() bool { return s.physical.Get("", spaces, "", namespaceOf("1a")) != nil }, "the namespace is there")
	time.Sleep(300 * time.Millisecond)
	require.Nil(t, s.below("1a", "api/v1/secrets", "token"), "it waits")
	s.physical.Apply(t, "", "api/v1/serviceaccounts", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: "+namespaceOf("1a")+"}}")
	s.eventually(func() bool {
		return field(s.below("1a", "api/v1/secrets", "token"), "type") == "kubernetes.io/service-account-token"
	}, "it is there")
	s.physical.Apply(t, "", "api/v1/secrets", "{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: "+namespaceOf("1a")+
		", annotations: {kubernetes.io/service-account.uid: u}}, data: {token: eA==}}")
	s.kcp.Apply(t, "1a", "api/v1/secrets", "{metadata: {name: token--c1, namespace: shop, labels: {seen: \"yes\"}}}")
	s.eventually(func() bool { return s.below("1a", "api/v1/secrets", "token").GetLabels()["seen"] == "yes" }, "it is written again")
	require.Equal(t, "eA==", field(s.below("1a", "api/v1/secrets", "token"), "data", "token"))
	require.Equal(t, "<nil>", field(s.kcp.Get("1a", "api/v1/secrets", "shop", "token--c1"), "data", "token"), "it is not copied back")
}
