package cluster

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/client/object"
)

// What Scale has set is taken over without a flag; what others have set is not.
func TestOwnConflict(t *testing.T) {
	conflict := func(managers ...string) error {
		var causes []metav1.StatusCause
		for _, m := range managers {
			causes = append(causes, metav1.StatusCause{
				Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas",
				Message: `conflict with "` + m + `" using apps/v1 at 2026-11-20T17:45:12Z`,
			})
		}
		return apierrors.NewApplyConflict(causes, "conflict")
	}
	require.True(t, ownConflict(conflict(object.FieldManager)))
	require.False(t, ownConflict(conflict("kubectl-edit")))
	require.False(t, ownConflict(conflict(object.FieldManager, "kubectl-edit")))
	require.False(t, ownConflict(errors.New("no answer")))
	require.False(t, ownConflict(nil))
}
