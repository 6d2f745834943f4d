package retry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// IsTransient reports whether a request that failed may succeed in a moment.
func IsTransient(err error) bool {
	switch {
	case err == nil, IsTLS(err):
		return false
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return true
	case apierrors.IsConflict(err):
		return strings.Contains(err.Error(), "resourcequotas")
	}
	return IsUnreachable(err)
}

// isTransientApply is IsTransient for server-side apply, which API servers also refuse while others keep writing the
// object. Field-manager conflicts are not retried.
func isTransientApply(err error) bool {
	return IsTransient(err) ||
		apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// IsTransientFirst is IsTransient for the first request of all: a failure to connect is not retried.
func IsTransientFirst(err error) bool { return IsTransient(err) && !isNotConnected(err) }

// IsWriteConflict reports whether another writer was faster: the object exists already, or has changed.
func IsWriteConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// IsTLS reports whether no secure connection could be made.
func IsTLS(err error) bool {
	var (
		unknown  x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		verify   *tls.CertificateVerificationError
		header   tls.RecordHeaderError
		tlsAlert tls.AlertError
	)
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &verify) ||
		errors.As(err, &header) || errors.As(err, &tlsAlert)
}

// IsUnreachable reports whether an API server could not be reached, or did not answer.
func IsUnreachable(err error) bool {
	var (
		op   *net.OpError
		slow net.Error
	)
	return isNotConnected(err) || errors.As(err, &op) || errors.Is(err, ErrNoAnswer) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout() ||
		errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err) || isHTTP2(err)
}

// isHTTP2 reports whether an HTTP/2 connection has broken. Such errors have no types: requests that share the
// connection see that it is lost, that another request has closed it, or that it is about to end.
func isHTTP2(err error) bool {
	return err != nil &&
		(strings.Contains(err.Error(), "http2: ") || strings.Contains(err.Error(), "stream error: stream ID"))
}

// isNotConnected reports whether there was no connection at all: the address is wrong, or no server listens on it.
func isNotConnected(err error) bool {
	var (
		op  *net.OpError
		dns *net.DNSError
	)
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}
