package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// once is the value of a flag that has one: a second one does not silently replace the first.
type once struct {
	pflag.Value
	name  string
	given bool
}

func (o *once) Set(text string) error {
	before := o.String()
	if err := o.Value.Set(text); err != nil {
		return err
	}
	if o.given && o.String() != before {
		return &givenTwice{o.name, before, text}
	}
	o.given = true
	return nil
}

type givenTwice struct{ flag, first, second string }

func (e *givenTwice) Error() string {
	return fmt.Sprintf("--%s has two values, %q and %q", e.flag, e.first, e.second)
}

// rejectSecondValues makes texts and numbers fail if they are given several values. Lists and maps have several, and
// switches and durations may be in an alias.
func rejectSecondValues(c *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{c.PersistentFlags(), c.Flags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, wrapped := f.Value.(*once)
			if !wrapped && slices.Contains([]string{"string", "int", "int32", "int64"}, f.Value.Type()) {
				f.Value = &once{Value: f.Value, name: f.Name}
			}
		})
	}
	for _, sub := range c.Commands() {
		rejectSecondValues(sub)
	}
}

// rejectEmptyValues makes an empty argument fail, and a flag that is given without a value: in a script, the variable
// that should have it is not set, and without it a command does more, such as for all shards. An empty flag can replace
// the value of a source.
func rejectEmptyValues(c *cobra.Command, args []string) error {
	if strings.HasPrefix(c.Name(), cobra.ShellCompRequestCmd) {
		return nil // the shell completes an empty word
	}
	if n := c.ArgsLenAtDash(); n >= 0 {
		args = args[:n] // what follows is a command of the user
	}
	var errs []error
	if slices.Contains(args, "") {
		errs = append(errs, clierr.New(clierr.BadInput, "omit it, or set the variable that should have it",
			"an argument of %s is empty", c.CommandPath()))
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		empty := f.Value.Type() == "string" && f.Value.String() == "" ||
			isList && (len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), ""))
		if empty && f.Annotations[sources] == nil {
			errs = append(errs, clierr.New(clierr.BadInput, "omit it, or set the variable that should have its value",
				"--%s has no value", f.Name))
		}
	})
	return errors.Join(errs...)
}

func flagError(c *cobra.Command, err error) error {
	if twice, ok := errors.AsType[*givenTwice](err); ok {
		return clierr.New(clierr.BadInput, "give it once", "%w", twice)
	}
	return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", "%w", plainFlagError(err))
}
