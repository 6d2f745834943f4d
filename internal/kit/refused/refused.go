// Package refused reads why an API server refuses an object.
package refused

import (
	"cmp"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Interval is the time until what was refused is tried again: a quota can be raised, or a policy changed.
const Interval = time.Minute

// By returns why an API server refuses an object, or "". The same request is refused again until the object has
// changed, or something else on the server has, such as a quota, a policy, or a role: see LacksRights. Admission
// refuses what is invalid with Forbidden, too (kcp: pkg/admission/apiresourceschema).
func By(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return ""
	}
	message := status.Status().Message
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(message, "etcdserver: request is too large") {
		return cmp.Or(message, err.Error())
	}
	return ""
}

// LacksRights reports whether an API server refuses a request because of its user, whatever the object is. Only the
// message of an authorizer names the user (apiserver: pkg/endpoints/handlers/responsewriters/errors.go).
func LacksRights(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsForbidden(err) && errors.As(err, &status) &&
		strings.Contains(status.Status().Message, `forbidden: User "`)
}
