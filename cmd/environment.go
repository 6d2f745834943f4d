package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// source is where a flag that is not given may get its value. A flag has no source unless it is marked: flags that
// remove data, accept a risk, answer a question or mean different things in different commands must be typed every
// time.
type source string

const (
	environment source = "environment"
	configFile  source = "configuration file"
)

const (
	sources   = "kcpctl.dev/sources" // the annotation of marked flags
	envPrefix = "KCPCTL_"
	// onlyWith is the annotation of flags that have no effect without another one.
	onlyWith = "kcpctl.dev/only-with"
	// notWith is the annotation of flags that have no effect together with another one.
	notWith = "kcpctl.dev/not-with"
)

// requireFlag makes it a mistake to type flags without another one, and keeps sources from setting them then.
func requireFlag(f *pflag.FlagSet, other string, names ...string) {
	annotate(f, onlyWith, []string{other}, names...)
}

// excludeFlag makes it a mistake to type flags together with another one, and keeps sources from setting them then.
// Commands accept flags that a dry run does not need, such as --yes: users add --dry-run to the line that they want to
// run.
func excludeFlag(f *pflag.FlagSet, other string, names ...string) {
	for _, name := range names {
		annotate(f, notWith, append(f.Lookup(name).Annotations[notWith], other), name)
	}
}

// isOn reports whether a flag is set to something else than its default.
func isOn(f *pflag.Flag) bool { return f.Changed && f.Value.String() != f.DefValue }

// excluder returns the flag that is set and that a flag cannot be used with, or "".
func excluder(c *cobra.Command, f *pflag.Flag) string {
	for _, name := range f.Annotations[notWith] {
		if isOn(c.Flags().Lookup(name)) {
			return name
		}
	}
	return ""
}

// lacks returns the flag that a flag requires and that is not set, or "".
func lacks(c *cobra.Command, f *pflag.Flag) string {
	for _, name := range f.Annotations[onlyWith] {
		if !isOn(c.Flags().Lookup(name)) {
			return name
		}
	}
	return ""
}

// allow marks flags whose values may come from some sources.
func allow(f *pflag.FlagSet, from []source, names ...string) {
	values := make([]string, len(from))
	for i, s := range from {
		values[i] = string(s)
	}
	annotate(f, sources, values, names...)
}

// anywhere are both sources.
var anywhere = []source{environment, configFile}

func (s source) sets(f *pflag.Flag) bool { return slices.Contains(f.Annotations[sources], string(s)) }

func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// settable are the flags, of all commands, that a source may set.
func (s source) settable(c *cobra.Command) []string {
	var out []string
	for _, flags := range []*pflag.FlagSet{c.PersistentFlags(), c.Flags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if s.sets(f) {
				out = append(out, f.Name)
			}
		})
	}
	for _, sub := range c.Commands() {
		out = append(out, s.settable(sub)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// omitLocal is the next step where --local cannot be used.
const omitLocal = "omit --local; it can also come from KCPCTL_LOCAL or the configuration file: --local=false " +
	"overrides it"

// setFromSources sets the flags that were not given from KCPCTL_* variables and from the configuration file, except
// those that have no effect with the others. Such a flag that was given is an error.
func setFromSources(env *Env, c *cobra.Command) error {
	file, err := readConfig(c.Root())
	if err != nil {
		return err
	}
	var errs []error
	local := c.Flags().Lookup("local")
	if local != nil { // it decides which others have an effect
		errs = append(errs, setFromSource(env, c, file, local))
	}
	excluded := map[string][]string{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch other, against := lacks(c, f), excluder(c, f); {
		case f == local:
		case against != "" && isOn(f):
			excluded[against] = append(excluded[against], "--"+f.Name)
		case against != "":
		case other != "" && f.Changed:
			errs = append(errs, clierr.New(clierr.BadInput, "add --"+other, "--%s requires --%s", f.Name, other))
		case other == "":
			errs = append(errs, setFromSource(env, c, file, f))
		}
	})
	for _, against := range slices.Sorted(maps.Keys(excluded)) {
		errs = append(errs, contradiction(c.Flags().Lookup(against), excluded[against]))
	}
	return errors.Join(errs...)
}

// contradiction is the error for flags that were given, and that cannot be used with another one.
func contradiction(against *pflag.Flag, flags []string) error {
	hint := "omit --" + against.Name + ", or " + strings.Join(flags, " and ")
	if environment.sets(against) {
		hint += fmt.Sprintf("; --%s can also come from %s or the configuration file: --%[1]s=false overrides it",
			against.Name, variable(against.Name))
	}
	return clierr.New(clierr.BadInput, hint, "%s cannot be used with --%s", strings.Join(flags, " and "), against.Name)
}

// otherInSources is the value of a flag that means something else than what sources have under its name, which it keeps
// apart.
type otherInSources interface{ setFromSource(value string) }

func isOtherInSources(f *pflag.Flag) (otherInSources, bool) {
	value := f.Value
	if o, ok := value.(*once); ok {
		value = o.Value
	}
	other, is := value.(otherInSources)
	return other, is
}

// setFromSource sets a flag that was not given from the first source that has a value for it.
func setFromSource(env *Env, c *cobra.Command, file *viper.Viper, f *pflag.Flag) error {
	other, isOther := isOtherInSources(f)
	if f.Changed && !isOther || f.Name == "help" {
		return nil
	}
	name := variable(f.Name)
	value, from := env.Getenv(name), name
	if value != "" && !environment.sets(f) {
		hint := fmt.Sprintf("unset it, and type --%s each time you want it; environment variables may set only %s",
			f.Name, strings.Join(environment.settable(c.Root()), ", "))
		return clierr.New(clierr.BadInput, hint, "--%s cannot be set by the environment variable %s", f.Name, name)
	}
	if value == "" && configFile.sets(f) && file.IsSet(f.Name) {
		value, from = file.GetString(f.Name), f.Name+" in "+file.ConfigFileUsed()
	}
	if value == "" {
		return nil
	}
	if isOther {
		other.setFromSource(value)
		return nil
	}
	if err := c.Flags().Set(f.Name, value); err != nil {
		return clierr.New(clierr.BadInput, "", "%s: %w", from, plainFlagError(err))
	}
	return nil
}

// plainFlagError replaces what Go's parsers say about a value of a flag.
func plainFlagError(err error) error {
	for parser, want := range map[string]string{
		"strconv.ParseBool": "must be true or false", "strconv.ParseInt": "must be a whole number",
		"strconv.ParseUint": "must be a whole number", "time: ": "must be a duration such as 90s, 10m or 1h",
	} {
		if before, _, ok := strings.Cut(err.Error(), parser); ok {
			return errors.New(before + want)
		}
	}
	return err
}

func readConfig(root *cobra.Command) (*viper.Viper, error) {
	v := viper.New()
	dir, err := os.UserConfigDir()
	if err != nil {
		return v, nil // no home, no file
	}
	v.SetConfigFile(filepath.Join(dir, "kcpctl", "config.yaml"))
	if err := v.ReadInConfig(); errors.Is(err, fs.ErrNotExist) {
		return v, nil
	} else if err != nil {
		return nil, clierr.New(clierr.BadInput, "fix or remove the file", "read %s: %w", v.ConfigFileUsed(), err)
	}
	allowed := configFile.settable(root)
	var refused []string
	for key, value := range v.AllSettings() {
		switch value.(type) {
		case string, bool, int, int64, float64:
			if slices.Contains(allowed, key) {
				continue
			}
		}
		refused = append(refused, fmt.Sprintf("%q", key))
	}
	if len(refused) == 0 {
		return v, nil
	}
	slices.Sort(refused)
	hint := "remove it; the file may set only " + strings.Join(allowed, ", ") + ", each to a single value"
	return nil, clierr.New(clierr.BadInput, hint, "%s cannot set %s", v.ConfigFileUsed(), strings.Join(refused, ", "))
}
