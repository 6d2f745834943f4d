package kube

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

func TestIsTransient(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	broken := func(op string, err error) error { return &url.Error{Op: "Get", Err: &net.OpError{Op: op, Err: err}} }
	for name, tc := range map[string]struct {
		err error
		// always, of an apply, and of the first request of all
		want, apply, first bool
	}{
		"quota being updated": {apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "q", errors.New("modified")), true, true, true},
		"many writers":        {apierrors.NewConflict(pods, "q", errors.New("modified")), false, true, false},
		"field conflict":      {apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "conflict"), false, false, false},
		"too many requests":   {apierrors.NewTooManyRequests("later", 1), true, true, true},
		"server timeout":      {apierrors.NewServerTimeout(pods, "patch", 1), true, true, true},
		"webhook":             {apierrors.NewInternalError(errors.New(`failed calling webhook "x"`)), true, true, true},
		"etcd":                {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), true, true, true},
		"bad gateway":         {apierrors.NewGenericServerResponse(502, "GET", pods, "", "", 0, true), true, true, true},
		"refused":             {broken("dial", syscall.ECONNREFUSED), true, true, false},
		"no such host":        {broken("dial", &net.DNSError{IsNotFound: true}), true, true, false},
		"reset":               {broken("read", syscall.ECONNRESET), true, true, true},
		"broken pipe":         {broken("write", syscall.EPIPE), true, true, true},
		"ended":               {&url.Error{Op: "Get", Err: io.EOF}, true, true, true},
		"ended in the answer": {fmt.Errorf("unexpected error when reading response body: %w", io.ErrUnexpectedEOF), true, true, true},
		"closed by another":   {&url.Error{Op: "Get", Err: errors.New("http2: client connection force closed via ClientConn.Close")}, true, true, true},
		"stream reset":        {&url.Error{Op: "Get", Err: errors.New("stream error: stream ID 5; INTERNAL_ERROR; received from peer")}, true, true, true},
		"no credentials":      {&url.Error{Op: "Get", Err: errors.New("getting credentials: exec: executable aws failed with exit code 255")}, false, false, false},
		"no answer":           {errNoAnswer, true, true, true},
		"tls":                 {&url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, false, false, false},
		"forbidden":           {apierrors.NewForbidden(pods, "x", errors.New("no")), false, false, false},
		"canceled":            {context.Canceled, false, false, false},
		"nothing":             {nil, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, isTransient(tc.err))
			require.Equal(t, tc.apply, isTransientApply(tc.err), "apply")
			require.Equal(t, tc.first, isTransientAtFirst(tc.err), "first")
		})
	}
}

func TestExplain(t *testing.T) {
	s := &site{Cluster: topology.Cluster{Name: "eu", Namespace: "kcp"}, context: "eu-prod", config: &rest.Config{Host: "https://eu:6443"}}
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, tc := range map[string]struct {
		err        error
		want, hint string
	}{
		"unauthorized": {apierrors.NewUnauthorized("Unauthorized"), "does not know the user of context eu-prod, namespace kcp", "log in again"},
		"denied": {apierrors.NewForbidden(secrets, "a", errors.New(`User "ann" cannot get resource "secrets"`)),
			`not allowed (context eu-prod, namespace kcp): secrets "a" is forbidden: User "ann" cannot get`, "administrator"},
		"quota":   {apierrors.NewForbidden(secrets, "a", errors.New("exceeded quota")), "exceeded quota", ""},
		"refused": {&url.Error{Op: "Get", URL: "x", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, "https://eu:6443 (context eu-prod, namespace kcp) does not answer", "kubectl --context eu-prod"},
		"tls":     {&url.Error{Op: "Get", URL: "x", Err: x509.UnknownAuthorityError{}}, "no secure connection", "certificate authority"},
		"etcd": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), "read a (context eu-prod, namespace kcp): Internal error",
			"run the command again: kubectl --context eu-prod get --raw '/readyz?verbose'"},
		"known": {clierr.New(clierr.Conflict, "a hint", "explained before"), "explained before", "a hint"},
		"other": {errors.New("oops"), "read a (context eu-prod, namespace kcp): oops", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.explain(tc.err, "read %s", "a")
			require.ErrorContains(t, err, tc.want)
			require.Contains(t, clierr.Hint(err), tc.hint)
			require.ErrorIs(t, err, tc.err)
		})
	}
	require.NoError(t, s.explain(nil, "read"))
}

func TestConflictsNameFieldAndManager(t *testing.T) {
	ref := plan.Ref{GroupVersionKind: known("Deployment").GroupVersionKind, Namespace: "kcp", Name: "demo-root"}
	err := apierrors.NewApplyConflict([]metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: `conflict with "kubectl-edit" using apps/v1`},
		{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "x"},
	}, "conflict")
	require.Equal(t, []plan.Conflict{
		{Ref: ref, Object: "Deployment/kcp/demo-root", Field: "spec.replicas", Manager: "kubectl-edit"},
	}, conflicts(ref, fmt.Errorf("apply: %w", err)))
	require.Empty(t, conflicts(ref, errors.New("oops")))
	require.Empty(t, conflicts(ref, nil))
}

func TestConcurrentlyReturnsEveryErrorOnce(t *testing.T) {
	err := concurrently(t.Context(), []string{"a", "", "b", "a"}, func(_ context.Context, s string) error {
		if s == "" {
			return nil
		}
		return errors.New(s)
	})
	require.EqualError(t, err, "a\nb")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLockLost)
	err = concurrently(ctx, []string{"a"}, func(context.Context, string) error { t.Error("called"); return nil })
	require.ErrorIs(t, err, errLockLost)
}
