package cmd

import (
	"errors"
	"fmt"

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

// rejectSecondValues makes flags of a single value fail if they are given several ones. Switches and durations do not:
// an alias may have them.
func rejectSecondValues(c *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{c.PersistentFlags(), c.Flags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, wrapped := f.Value.(*once)
			_, list := f.Value.(pflag.SliceValue)
			if kind := f.Value.Type(); !wrapped && !list && kind != "bool" && kind != "duration" {
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
