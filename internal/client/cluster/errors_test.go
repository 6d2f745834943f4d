package cluster

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestExplain(t *testing.T) {
	c := &Client{Cluster: topology.Cluster{Name: "eu", Namespace: "kcp"}, KubeContext: "eu-prod", Config: &rest.Config{Host: "https://eu:6443"}}
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, tc := range map[string]struct {
		err        error
		want, hint string
	}{
		"unauthorized": {apierrors.NewUnauthorized("Unauthorized"), "credentials of context eu-prod, namespace kcp", "log in again"},
		"denied": {apierrors.NewForbidden(secrets, "a", errors.New(`User "ann" cannot get resource "secrets"`)),
			`not allowed (context eu-prod, namespace kcp): secrets "a" is forbidden: User "ann" cannot get`, "administrator"},
		"denied path": {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`User "ann" cannot get path "/metrics"`)),
			"not allowed (context eu-prod, namespace kcp)", "administrator"},
		"webhook": {apierrors.NewForbidden(secrets, "a", errors.New(`admission webhook "x" denied the request: User must be non-root`)),
			`read a (context eu-prod, namespace kcp): secrets "a" is forbidden: admission webhook`, ""},
		"quota":   {apierrors.NewForbidden(secrets, "a", errors.New("exceeded quota")), "exceeded quota", ""},
		"refused": {&url.Error{Op: "Get", URL: "x", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, "https://eu:6443 (context eu-prod, namespace kcp) does not answer", "kubectl --context eu-prod"},
		"tls":     {&url.Error{Op: "Get", URL: "x", Err: x509.UnknownAuthorityError{}}, "no secure connection", "certificate authority"},
		"etcd": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), "read a (context eu-prod, namespace kcp): Internal error",
			"kubectl --context eu-prod get --raw '/readyz?verbose'"},
		"known": {clierr.New(clierr.Conflict, "a hint", "explained before"), "explained before", "a hint"},
		"other": {errors.New("oops"), "read a (context eu-prod, namespace kcp): oops", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Explain(tc.err, "read %s", "a")
			require.ErrorContains(t, err, tc.want)
			require.Contains(t, clierr.Hint(err), tc.hint)
			require.ErrorIs(t, err, tc.err)
		})
	}
	require.NoError(t, c.Explain(nil, "read"))
}

func TestConflictsNameFieldAndManager(t *testing.T) {
	ref := plan.Ref{GroupVersionKind: kind.Deployment.GroupVersionKind, Namespace: "kcp", Name: "demo-root"}
	err := apierrors.NewApplyConflict([]metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: `conflict with "kubectl-edit" using apps/v1`},
		{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "x"},
	}, "conflict")
	require.Equal(t, []plan.Conflict{
		{Ref: ref, Object: "Deployment/kcp/demo-root", Field: "spec.replicas", Manager: "kubectl-edit"},
	}, plan.ConflictsOf(ref, fmt.Errorf("apply: %w", err)))
	require.Empty(t, plan.ConflictsOf(ref, errors.New("oops")))
	require.Empty(t, plan.ConflictsOf(ref, nil))
}
