package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type validateOptions struct {
	env    *Env
	files  []string
	output string
}

func newValidateCmd(env *Env) *cobra.Command {
	o := &validateOptions{env: env}
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check setup files without contacting a cluster",
		Long: `Validate reads setup files as up does, and reports all mistakes of all files together, each with line and
column. For a file without mistakes it also renders the objects, and verifies the certificates of all
connections. It writes nothing, and contacts no cluster: kcpctl check --pre does.

Exit codes: 0 all files are valid, 2 a file is invalid.`,
		Example: `  kcpctl validate
  kcpctl validate -f eu.yaml -f us.yaml -o json`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	c.Flags().StringSliceVarP(&o.files, "file", "f", []string{defaultFile}, "setup file, or - for stdin (repeatable)")
	allow(c.Flags(), anywhere, "file")
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

// validation is the result in machineFormats.
type validation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Valid is true if no file has a problem.
	Valid bool `json:"valid"`
	// Items are the files, in the order in which they were named.
	Items []validatedFile `json:"items"`
}

// validatedFile is a setup file. Only valid ones have a name, a version and components.
type validatedFile struct {
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	// Name is metadata.name, and Version the release of kcp.
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Components are the numbers of components of each kind that runs, such as shard.
	Components map[topology.Kind]int `json:"components,omitempty"`
	// Problems are all mistakes of the file, and Notes are remarks about a valid one.
	Problems []setup.Problem `json:"problems,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	// described is the setup in one line.
	described string
}

func (o *validateOptions) run(ctx context.Context) error {
	result := validation{APIVersion: v1alpha1.APIVersion, Kind: "Validation", Valid: true}
	var problems setup.Errors
	for _, path := range o.files {
		f := o.file(ctx, path)
		f.Valid = len(f.Problems) == 0
		result.Valid = result.Valid && f.Valid
		result.Items = append(result.Items, f)
		problems = append(problems, f.Problems...)
	}
	if o.output != "" {
		if err := encode(o.env.Streams.Out, o.output, result); err != nil || result.Valid {
			return err
		}
		return silent(clierr.BadInput)
	}
	for _, f := range result.Items {
		for _, n := range f.Notes {
			o.env.note(f.File + ": " + n)
		}
		if f.Valid {
			fmt.Fprintln(o.env.Streams.Out, o.env.Streams.Out.Text(f.File+" is valid: "+f.described))
		}
	}
	if result.Valid {
		return nil
	}
	return &clierr.Error{Err: problems, Code: clierr.BadInput}
}

func (o *validateOptions) file(ctx context.Context, path string) validatedFile {
	f, err := setup.Load(path, o.env.Streams.In)
	if err != nil {
		name := path
		if path == setup.Stdin {
			name = setup.StdinName
		}
		return validatedFile{File: name, Problems: problemsOf(name, err)}
	}
	t := topology.Build(f.Setup)
	out := validatedFile{File: f.Name, Name: t.Name, Version: f.Setup.Spec.Version, Notes: f.Notes(),
		Components: map[topology.Kind]int{}, described: describeSetup(f, t)}
	for _, c := range t.Components {
		if c.Kind.Runs() {
			out.Components[c.Kind]++
		}
	}
	if len(t.Assigned()) > 0 {
		out.Notes = append(out.Notes, "the certificates are not verified, because clusters assign addresses that "+
			"they are for")
		return out
	}
	flags := &setupFlags{file: path}
	desired, err := deploy.LoadDesired(ctx, t, flags.pkiDirectory(f),
		deploy.DesiredOptions{Now: o.env.Now(), Offline: true})
	if err == nil {
		_, err = desired.Objects()
	}
	out.Problems = problemsOf(f.Name, err)
	return out
}

func problemsOf(file string, err error) []setup.Problem {
	if err == nil {
		return nil
	}
	if found, ok := errors.AsType[setup.Errors](err); ok {
		return found
	}
	return []setup.Problem{{File: file, Message: err.Error(), Hint: clierr.Hint(err)}}
}

// describeSetup describes a setup in one line: kcp "demo" v0.32.3 with 1 root-shard, 2 shards.
func describeSetup(f *setup.File, t *topology.Topology) string {
	var kinds []topology.Kind
	of := map[topology.Kind]int{}
	for _, c := range t.Components {
		if !c.Kind.Runs() {
			continue
		}
		if of[c.Kind] == 0 {
			kinds = append(kinds, c.Kind)
		}
		of[c.Kind]++
	}
	var parts []string
	for _, k := range kinds {
		parts = append(parts, gather.Count(of[k], string(k), k.Plural()))
	}
	text := fmt.Sprintf("kcp %q %s with %s", t.Name, f.Setup.Spec.Version, strings.Join(parts, ", "))
	if n := len(f.Setup.Spec.Clusters); n > 1 {
		text += fmt.Sprintf(", on %d clusters", n)
	}
	return text
}
