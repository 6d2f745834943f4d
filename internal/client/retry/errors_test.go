package retry

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
		"no answer":           {ErrNoAnswer, true, true, true},
		"tls":                 {&url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, false, false, false},
		"forbidden":           {apierrors.NewForbidden(pods, "x", errors.New("no")), false, false, false},
		"canceled":            {context.Canceled, false, false, false},
		"nothing":             {nil, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, IsTransient(tc.err))
			require.Equal(t, tc.apply, isTransientApply(tc.err), "apply")
			require.Equal(t, tc.first, IsTransientFirst(tc.err), "first")
		})
	}
}
