package plan

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// CheckEnding fails if the live object is being deleted: it looks unchanged, what an apply changes in it is lost, and
// it disappears. Volume claims do not count: whether a component may lose them is decided by the record. where is the
// place of the object, unless its reference has it. kubectl completes a command that waits; nil: there is none.
func (it Item) CheckEnding(where string, kubectl func(args string) string) error {
	if it.Live == nil || it.Live.GetDeletionTimestamp() == nil || it.Kind == "PersistentVolumeClaim" {
		return nil
	}
	object, why, next := it.Ref.String(), "", "wait until it is gone, and rerun the command"
	if where != "" {
		object += " (" + where + ")"
	}
	if all := it.Live.GetFinalizers(); len(all) > 0 {
		why = "; its finalizers are " + strings.Join(all, ", ")
	}
	if kubectl != nil {
		args := fmt.Sprintf("wait --for=delete %s/%s", strings.ToLower(it.Kind), it.Name)
		if it.Namespace != "" {
			args = "-n " + it.Namespace + " " + args
		}
		next += ": " + kubectl(args)
	}
	return clierr.New(clierr.Failed, next, "%s is being deleted%s", object, why)
}
