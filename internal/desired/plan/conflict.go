package plan

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Conflict is a field that another field manager owns and that the plan would change.
type Conflict struct {
	Ref     `json:"-"`
	Object  string `json:"object"`
	Field   string `json:"field"`
	Manager string `json:"manager"`
}

// ConflictsOf returns the fields that other managers own, from the error of a server-side apply.
func ConflictsOf(ref Ref, err error) []Conflict {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []Conflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			out = append(out, Conflict{
				Ref: ref, Object: ref.String(), Field: strings.TrimPrefix(cause.Field, "."),
				Manager: manager(cause.Message),
			})
		}
	}
	return out
}

// manager returns the manager in a message such as: conflict with "kubectl-edit" using apps/v1 at 2026-11-20T17:45:12Z.
func manager(message string) string {
	if _, rest, ok := strings.Cut(message, `"`); ok {
		name, _, _ := strings.Cut(rest, `"`)
		return name
	}
	return message
}

// ConflictsError lists the fields that other managers own.
func ConflictsError(all []Conflict) error {
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s: %s is owned by %q", c.Object, c.Field, c.Manager))
	}
	return clierr.New(clierr.Conflict,
		"let the other manager drop the field, leave it out of the setup, or take it over with --force-conflicts",
		"%s", strings.Join(lines, "\n"))
}
