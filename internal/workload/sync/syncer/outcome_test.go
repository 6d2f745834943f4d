package syncer

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fieldpath "k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

func TestOutcomes(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return fmt.Errorf("apply: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}})
	}
	for _, c := range []struct {
		name    string
		err     error
		reason  string
		refused bool
	}{
		{"accepted", nil, api.ReasonSynced, false},
		{"a policy", status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			`deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), api.ReasonDenied, true},
		{"a webhook", status(http.StatusBadRequest, metav1.StatusReasonBadRequest, `admission webhook "w.example.com" denied the request: no`), api.ReasonDenied, true},
		{"a plug-in", status(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "web" is forbidden: no`), api.ReasonDenied, true},
		{"a quota", status(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "web" is forbidden: exceeded quota: full`), api.ReasonQuotaExceeded, true},
		{"a new quota", status(http.StatusForbidden, metav1.StatusReasonForbidden, `services "web" is forbidden: status unknown for quota: q, resources: pods`), "", false},
		{"a value", status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `Deployment.apps "web" is invalid: spec.replicas`), api.ReasonInvalid, true},
		{"a field", status(http.StatusBadRequest, metav1.StatusReasonBadRequest, `unknown field "spec.x"`), api.ReasonInvalid, true},
		{"the network", errors.New("connection refused"), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, refused := outcomeOf(c.err)
			require.Equal(t, c.refused, refused)
			require.Equal(t, c.reason, o.reason)
		})
	}
}

// Only fields that the object does not have itself are unset. What is beside them is set at the same time.
func TestWhatIsUnset(t *testing.T) {
	object := parse(t, "{kind: Deployment, spec: {replicas: 2, strategy: {type: Recreate}, template: {spec: {containers: [{name: c}]}}}}")
	invalid := func(fields ...string) error {
		var all fieldpath.ErrorList
		for _, f := range fields {
			all = append(all, fieldpath.Forbidden(fieldpath.NewPath(f), "no"))
		}
		return fmt.Errorf("apply: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", all))
	}
	require.Equal(t, map[string]any{"spec": map[string]any{"strategy": map[string]any{"type": "Recreate", "rollingUpdate": nil}}},
		unset(object, invalid("spec.strategy.rollingUpdate")))
	require.Nil(t, unset(object, invalid("spec", "spec.replicas", "spec.template.spec.containers[0].image", "metadata.name", "status.x", "spec.other.field", "")))
	require.Nil(t, unset(object, errors.New("connection refused")))
	require.Nil(t, unset(object, nil))
	require.NotContains(t, object.Object["spec"].(map[string]any)["strategy"], "rollingUpdate")
}
