package refused_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/kit/refused"
)

func TestRefused(t *testing.T) {
	gr := schema.GroupResource{Group: "apis.kcp.io", Resource: "apiresourceschemas"}
	forbidden := func(why string) error { return apierrors.NewForbidden(gr, "v1.widgets", errors.New(why)) }
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	for name, tc := range map[string]struct {
		err     error
		refused bool
		rights  bool
	}{
		"nothing":          {nil, false, false},
		"no answer":        {errors.New(`is forbidden: User "x"`), false, false},
		"no rights":        {forbidden(`User "kcpctl:controller:demo" cannot create resource "apiresourceschemas" in API group "apis.kcp.io" at the cluster scope`), true, true},
		"invalid":          {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), true, false},
		"kcp, if invalid":  {forbidden(`[spec.versions[0].schema: Invalid value: "User ": bad]`), true, false},
		"a quota":          {fmt.Errorf("apply: %w", forbidden("exceeded quota: small")), true, false},
		"bad":              {apierrors.NewBadRequest("admission webhook denied the request"), true, false},
		"too large":        {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true, false},
		"larger than etcd": {status(http.StatusInternalServerError, "etcdserver: request is too large"), true, false},
		"a conflict":       {apierrors.NewConflict(gr, "x", errors.New("changed")), false, false},
		"a failure":        {apierrors.NewInternalError(errors.New("x")), false, false},
		"who is it":        {apierrors.NewUnauthorized("expired"), false, false},
	} {
		require.Equal(t, tc.refused, refused.By(tc.err) != "", name)
		require.Equal(t, tc.rights, refused.LacksRights(tc.err), name)
	}
}
