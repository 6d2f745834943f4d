package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
)

// errTimeout says that an API server did not answer in time.
var errTimeout = fmt.Errorf("no answer within %s", connectTimeout)

// explain says what could not be done, where, why, and what to do about it.
func (s *site) explain(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if _, ok := errors.AsType[*clierr.Error](err); ok || err == nil {
		return err
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return clierr.New(clierr.Failed, "log in again, or choose another context",
			"%s: the API server does not know the user of %s: %w", what, s.where(), err)
	case isDenied(err):
		return clierr.New(clierr.Failed, "ask an administrator of the cluster for this permission, or choose another context",
			"%s: not allowed (%s): %w", what, s.where(), err)
	case isTLS(err):
		return clierr.New(clierr.Failed,
			"correct the certificate authority, the server's address or the client certificate in the kubeconfig",
			"%s: no secure connection to %s (%s): %w", what, s.config.Host, s.where(), err)
	case isUnreachable(err):
		return s.unreachable(err)
	case isTransient(err):
		return clierr.New(clierr.Failed,
			"see whether the API server, its etcd and its webhooks are well, and run the command again: "+s.kubectl("get --raw '/readyz?verbose'"),
			"%s (%s): %w", what, s.where(), err)
	}
	return fmt.Errorf("%s (%s): %w", what, s.where(), err)
}

func (s *site) unreachable(err error) error {
	return clierr.New(clierr.Failed,
		"check that the cluster runs and that this machine reaches it: "+s.kubectl("get --raw /readyz"),
		"the API server %s (%s) does not answer: %w", s.config.Host, s.where(), err)
}

// isDenied tells a missing permission from what else an API server forbids, such as exceeding a quota: the message of an
// authorizer names the user.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "User ")
}

func isTLS(err error) bool {
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

func isUnreachable(err error) bool {
	var (
		op   *net.OpError
		slow net.Error
	)
	return isUnfound(err) || errors.As(err, &op) || errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &slow) && slow.Timeout() || errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err) || isHTTP2(err)
}

// isHTTP2 tells whether a connection of HTTP/2 has broken, which has errors without types: requests that share it see that it
// is lost, closed by another of them, or about to end.
func isHTTP2(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "http2: ") || strings.Contains(err.Error(), "stream error: stream ID"))
}

// isUnfound tells whether there was no connection at all: the address is wrong, or nobody listens there.
func isUnfound(err error) bool {
	var (
		op  *net.OpError
		dns *net.DNSError
	)
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// isTransient tells whether a request that failed may well succeed in a moment.
func isTransient(err error) bool {
	switch {
	case err == nil, isTLS(err):
		return false
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return true
	case apierrors.IsConflict(err):
		return strings.Contains(err.Error(), "resourcequotas")
	}
	return isUnreachable(err)
}

// isTransientApply tells the same of an apply, which API servers also refuse when others write the object all the time. A
// field that another manager owns stays his.
func isTransientApply(err error) bool {
	return isTransient(err) || apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// isTransientAtFirst tells the same of the first request of all. If there is no connection, there is none in a moment either.
func isTransientAtFirst(err error) bool { return isTransient(err) && !isUnfound(err) }

// conflicts returns the fields that other managers own.
func conflicts(ref plan.Ref, err error) []plan.Conflict {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []plan.Conflict
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			out = append(out, plan.Conflict{Ref: ref, Object: ref.String(), Field: strings.TrimPrefix(c.Field, "."), Manager: manager(c.Message)})
		}
	}
	return out
}

// manager takes the manager out of a message such as: conflict with "kubectl-edit" using apps/v1 at 2026-11-20T17:45:12Z.
func manager(message string) string {
	if _, rest, ok := strings.Cut(message, `"`); ok {
		name, _, _ := strings.Cut(rest, `"`)
		return name
	}
	return message
}

// invalid explains an object that the API server does not accept.
func (s *site) invalid(ref plan.Ref, err error) error {
	if !isImmutable(err) {
		return clierr.New(clierr.Failed, "", "%s is not valid (%s): %w", ref, s.where(), err)
	}
	hint := "take the change back, or delete the object and run kcpctl up again: " +
		s.kubectl(fmt.Sprintf("-n %s delete %s %s", ref.Namespace, strings.ToLower(ref.Kind), ref.Name))
	switch ref.Kind {
	case "StatefulSet":
		hint += " --cascade=orphan (pods and data stay)"
	case "PersistentVolumeClaim":
		hint = "take the change back: a volume can only grow, and only where its storage class allows it"
	}
	return clierr.New(clierr.Failed, hint,
		"%s has changes that Kubernetes does not allow on an existing object (%s): %w", ref, s.where(), err)
}

// isImmutable tells whether an object was refused because of a field that cannot be changed.
func isImmutable(err error) bool {
	if !apierrors.IsInvalid(err) {
		return false
	}
	for _, sign := range []string{
		"immutable", "updates to statefulset spec for fields other than", "can not be less than", "may not change",
	} {
		if strings.Contains(err.Error(), sign) {
			return true
		}
	}
	return false
}
