package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Conflict is a field that another field manager owns and that the plan would change.
type Conflict struct {
	Ref     `json:"-"`
	Object  string `json:"object"`
	Field   string `json:"field"`
	Manager string `json:"manager"`
	// Leave is how the setup file leaves the field to the other manager. It is empty if it cannot.
	Leave string `json:"-"`
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

// DryRun sets the result of an apply, which must be a dry run. If other managers own fields, it is applied again with
// force, and these fields are returned.
func (i *Item) DryRun(apply func(force bool) (*unstructured.Unstructured, error)) (found []Conflict, err error) {
	i.Merged, err = apply(false)
	if found = ConflictsOf(i.Ref, err); found != nil {
		i.Merged, err = apply(true)
	}
	return found, err
}

// manager returns the manager in a message such as: conflict with "kubectl-edit" using apps/v1 at 2026-11-20T17:45:12Z.
func manager(message string) string {
	if _, rest, ok := strings.Cut(message, `"`); ok {
		name, _, _ := strings.Cut(rest, `"`)
		return name
	}
	return message
}

// Settle decides what an apply does with an object, after a dry run that has taken over the fields of other managers in
// found. It returns the fields that prevent the apply: none with force, and none if no value differs, because an API
// server also reports a conflict for what it has completed itself. With force, the apply takes over such fields, too.
func (i *Item) Settle(found []Conflict, force bool) []Conflict {
	found = i.withoutLeft(found)
	same := i.Live != nil && Same(i.Live, i.Merged)
	switch {
	case i.Live == nil:
	case same && (len(found) == 0 || !force):
		i.Action = Unchanged
		i.Merged = nil // it is the same as Live
		return nil
	case same:
		i.Action = Change
		i.Note = fmt.Sprintf("kcpctl takes over %s, and no value changes", strings.Join(fieldsOf(found), ", "))
	default:
		i.Action = Change
	}
	if force {
		return nil
	}
	return found
}

// withoutLeft returns conflicts without the replicas that an object leaves to others: the dry run sends their number,
// and they may have been scaled since it was read. An apply does not send it.
func (i *Item) withoutLeft(found []Conflict) []Conflict {
	if i.Want == nil || !LeavesReplicas(i.Want) {
		return found
	}
	return slices.DeleteFunc(found, func(c Conflict) bool { return c.Field == "spec.replicas" })
}

func fieldsOf(all []Conflict) []string {
	var out []string
	for _, c := range all {
		out = append(out, c.Field)
	}
	return out
}

// ConflictsError lists the fields that other managers own.
func ConflictsError(all []Conflict) error {
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s: %s is owned by %q", c.Object, c.Field, c.Manager))
	}
	return clierr.New(clierr.Conflict,
		"stop the other manager from setting the field, or take it over with --force-conflicts",
		"%s", strings.Join(lines, "\n"))
}
