package cmd

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// componentArgs are the components that a command works on: those that its arguments name, or all that run.
type componentArgs struct {
	names []string
	all   bool
}

func (a *componentArgs) add(flags *pflag.FlagSet, usage string) {
	flags.BoolVar(&a.all, "all", false, usage)
}

// selected are the components, each once, in the order of the topology.
func (a *componentArgs) selected(s *session) ([]topology.ID, error) {
	known := componentIDs(s)
	switch {
	case a.all && len(a.names) > 0:
		return nil, clierr.New(clierr.BadInput, "omit --all, or the names",
			"--all cannot be used with names of components")
	case a.all:
		return idsOfNames(known), nil
	case len(a.names) == 0:
		return nil, clierr.New(clierr.BadInput, oneOf(known), "a component is required, or --all")
	}
	for _, name := range a.names {
		if !slices.Contains(known, name) {
			return nil, unknownName("component", name, known)
		}
	}
	return slices.DeleteFunc(idsOfNames(known),
		func(id topology.ID) bool { return !slices.Contains(a.names, string(id)) }), nil
}
