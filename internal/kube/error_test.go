package kube

import (
	"context"
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

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

func TestIsTransient(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"quota being updated": {apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "q", errors.New("modified")), true},
		"field conflict":      {apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "conflict"), false},
		"too many requests":   {apierrors.NewTooManyRequests("later", 1), true},
		"server timeout":      {apierrors.NewServerTimeout(pods, "patch", 1), true},
		"webhook":             {apierrors.NewInternalError(errors.New(`failed calling webhook "x"`)), true},
		"internal":            {apierrors.NewInternalError(errors.New("oops")), false},
		"refused":             {&url.Error{Err: &net.OpError{Err: syscall.ECONNREFUSED}}, true},
		"reset":               {&url.Error{Err: &net.OpError{Err: syscall.ECONNRESET}}, true},
		"forbidden":           {apierrors.NewForbidden(pods, "x", errors.New("no")), false},
		"canceled":            {context.Canceled, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, isTransient(tc.err)) })
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
		"known":   {clierr.New(clierr.Conflict, "a hint", "explained before"), "explained before", "a hint"},
		"other":   {errors.New("oops"), "read a (context eu-prod, namespace kcp): oops", ""},
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
