package cmd

import (
	"errors"
	"fmt"
	"slices"

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

// flagError is the error for flags that cannot be parsed.
func flagError(c *cobra.Command, err error) error {
	if twice, ok := errors.AsType[*givenTwice](err); ok {
		return clierr.New(clierr.BadInput, "give it once", "%w", twice)
	}
	return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", "%w", plainFlagError(err))
}
