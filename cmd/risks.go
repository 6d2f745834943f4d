package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/risk"
)

const flagAllow = "allow"

// acceptance is a risk that a user can accept for a command.
type acceptance struct {
	risk risk.Risk
	// value names what the risk is accepted for, such as COMPONENT. It is empty for a risk of the whole command.
	value string
	usage string
	// accept is called with the names after =.
	accept func(names []string) error
	// names completes them. It can be nil.
	names completer
}

// acceptances is the value of --allow.
type acceptances []acceptance

// addRisk makes a command accept a risk with --allow.
func addRisk(c *cobra.Command, a acceptance) {
	f := c.Flags()
	if f.Lookup(flagAllow) == nil {
		f.Var(&acceptances{}, flagAllow, "")
		listUnder(f, GroupRisk, flagAllow)
		completeFlag(c, flagAllow, func(c *cobra.Command) []string { return accepted(c).candidates(c) })
	}
	all := accepted(c)
	*all = append(*all, a)
	slices.SortFunc(*all, func(a, b acceptance) int { return strings.Compare(string(a.risk), string(b.risk)) })
	f.Lookup(flagAllow).Usage = all.usage()
}

func accepted(c *cobra.Command) *acceptances {
	all, _ := c.Flags().Lookup(flagAllow).Value.(*acceptances)
	return all
}

func (all *acceptances) usage() string {
	width := 0
	for _, a := range *all {
		width = max(width, len(a.name()))
	}
	lines := []string{"accept a `RISK` (repeatable):"}
	for _, a := range *all {
		lines = append(lines, fmt.Sprintf("  %-*s  %s", width, a.name(), a.usage))
	}
	return strings.Join(lines, "\n")
}

// name returns the risk as the help shows it, such as data-change=COMPONENT.
func (a *acceptance) name() string {
	if a.value == "" {
		return string(a.risk)
	}
	return string(a.risk) + "=" + a.value
}

func (all *acceptances) candidates(c *cobra.Command) []string {
	var out []string
	for _, a := range *all {
		switch {
		case a.value == "":
			out = append(out, string(a.risk))
		case a.names == nil:
			out = append(out, string(a.risk)+"=")
		default:
			for _, name := range a.names(c) {
				out = append(out, string(a.risk)+"="+name)
			}
		}
	}
	return out
}

// Type implements pflag.Value.
func (all *acceptances) Type() string { return "risk" }

// String implements pflag.Value: no risk is accepted by default.
func (all *acceptances) String() string { return "" }

// Set implements pflag.Value.
func (all *acceptances) Set(text string) error {
	what, names, named := strings.Cut(text, "=")
	var known []string
	for _, a := range *all {
		known = append(known, a.name())
		switch {
		case string(a.risk) != what:
			continue
		case a.value == "" && named:
			return fmt.Errorf("%s has no value: use --%s %[1]s", what, flagAllow)
		case a.value != "" && names == "":
			return fmt.Errorf("%s needs what it is accepted for: use --%s %s", what, flagAllow, a.name())
		case a.value == "":
			return a.accept(nil)
		}
		return a.accept(strings.Split(names, ","))
	}
	return fmt.Errorf("unknown risk %q: use %s", what, strings.Join(known, ", "))
}

// set is for a risk of the whole command.
func set(value *bool) func([]string) error {
	return func([]string) error { *value = true; return nil }
}

// collect is for a risk with names.
func collect(value *[]string) func([]string) error {
	return func(names []string) error { *value = append(*value, names...); return nil }
}
