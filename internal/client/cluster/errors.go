package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
)

// Explain adds to an error what failed, on which cluster, why, and the next step. It returns errors that have been
// explained, and nil, without a change.
func (c *Client) Explain(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if _, ok := errors.AsType[*clierr.Error](err); ok || err == nil {
		return err
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return clierr.New(clierr.Failed, c.next("log in again, or choose another context",
			"check that the credentials for it are valid and have not expired"),
			"%s: the API server does not accept the credentials of %s: %w", what, c.Where(), err)
	case IsDenied(err):
		return clierr.New(clierr.Failed,
			c.next("ask an administrator of the cluster for this permission, or choose another context",
				"ask an administrator for this permission"),
			"%s: not allowed (%s): %w", what, c.Where(), err)
	case retry.IsTLS(err):
		return clierr.New(clierr.Failed,
			"correct the certificate authority, the server address or the client certificate in the kubeconfig",
			"%s: no secure connection to %s: %w", what, c.server(), err)
	case retry.IsUnreachable(err):
		return c.unreachable(err)
	case retry.IsTransient(err):
		return clierr.New(clierr.Failed,
			c.next("check that the API server, its etcd and its webhooks are healthy, and rerun the command: "+
				c.Kubectl("get --raw '/readyz?verbose'"),
				"check that the server, its etcd and its webhooks are healthy"),
			"%s (%s): %w", what, c.Where(), err)
	}
	return fmt.Errorf("%s (%s): %w", what, c.Where(), err)
}

func (c *Client) unreachable(err error) error {
	return clierr.New(clierr.Failed,
		c.next("check that the cluster is running and reachable from this machine: "+c.Kubectl("get --raw /readyz"),
			"check that the server is running and reachable from here"),
		"the API server %s does not answer: %w", c.server(), err)
}

// server names the API server with its URL.
func (c *Client) server() string {
	if c.byURL {
		return c.Where()
	}
	return c.Config.Host + " (" + c.Where() + ")"
}

// next returns the next step for a cluster of a kubeconfig, or that for a server that none has.
func (c *Client) next(cluster, server string) string {
	if c.byURL {
		return server
	}
	return cluster
}

// IsDenied reports whether the user lacks a permission. API servers forbid other things too, such as exceeding a quota,
// but only the message of an authorizer begins with the user.
func IsDenied(err error) bool { return refused.LacksRights(err) }

// Rejected explains why the API server did not accept an object.
func (c *Client) Rejected(ref plan.Ref, err error) error {
	if found := plan.ConflictsOf(ref, err); found != nil {
		return plan.ConflictsError(found)
	}
	if apierrors.IsInvalid(err) {
		return c.invalid(ref, err)
	}
	return c.Explain(err, "apply %s", ref)
}

// invalid explains an object that the API server does not accept as it is.
func (c *Client) invalid(ref plan.Ref, err error) error {
	if !isImmutable(err) {
		return clierr.New(clierr.Failed, "", "%s is invalid (%s): %w", ref, c.Where(), err)
	}
	hint := "revert the change, or delete the object and rerun kcpctl up: " +
		c.Kubectl(fmt.Sprintf("-n %s delete %s %s", ref.Namespace, strings.ToLower(ref.Kind), ref.Name))
	switch ref.Kind {
	case "StatefulSet":
		hint += " --cascade=orphan (pods and data stay)"
	case "PersistentVolumeClaim":
		hint = "revert the change: a volume can only grow, and only if its storage class allows it"
	}
	return clierr.New(clierr.Failed, hint,
		"%s has changes that Kubernetes does not allow on an existing object (%s): %w", ref, c.Where(), err)
}

// immutableMessages are parts of messages about fields that cannot be changed.
var immutableMessages = []string{
	"immutable", "updates to statefulset spec for fields other than", "can not be less than", "may not change",
}

// isImmutable reports whether an object was refused because of a field that cannot be changed.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && slices.ContainsFunc(immutableMessages, func(part string) bool {
		return strings.Contains(err.Error(), part)
	})
}
