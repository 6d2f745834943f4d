package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/engine/bundle"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type bundleOptions struct {
	env   *Env
	setup setupFlags
	// flags are the flags of the command.
	flags *pflag.FlagSet
	// output is the file to write.
	output string
	tail   number
}

func newSupportBundleCmd(env *Env) *cobra.Command {
	o := &bundleOptions{env: env, tail: 1000}
	c := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what helps to find a fault into one archive, without secrets",
		Long: `Support-bundle writes an archive with the status, the results of check, the certificates, the history,
the differences, the events, the pods, the logs and the setups of a kcp. Use it to ask others for help,
or to keep the state before you repair it. It works while parts are broken: the file of a part then has
the error.

It contains no Secrets, private keys, tokens and kubeconfigs. Values of flags and variables in the setup file,
which can be secret, are removed from all files. Names, addresses and messages remain: look at the archive
before you give it to others.`,
		Example: `  kcpctl support-bundle
  kcpctl support-bundle -o incident.tar.gz --tail 5000`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.flags = c.Flags()
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.setup.add(f)
	f.StringVarP(&o.output, "output", "o", "", "file to write (default: kcpctl-NAME-TIME.tar.gz)")
	f.Var(&o.tail, "tail", "how many of the last lines of each log to include")
	return c
}

func (o *bundleOptions) run(ctx context.Context) error {
	input, err := o.readStdin()
	if err != nil {
		return err
	}
	s, err := loadSetup(o.env.withStreams(&ui.Streams{In: strings.NewReader(input), Out: o.env.Streams.Out,
		Err: o.env.Streams.Err}), &o.setup)
	if err != nil {
		return err
	}
	now := o.env.Now().UTC()
	stamp := now.Format("20060102T150405Z")
	if o.output == "" {
		o.output = fmt.Sprintf("kcpctl-%s-%s.tar.gz", s.topology.Name, stamp)
	}
	if _, err := os.Lstat(o.output); err == nil {
		return clierr.New(clierr.BadInput, "name another file with -o", "%s already exists", o.output)
	}
	defer s.close()
	b := &bundleRun{
		Bundle: bundle.New(s.file.Setup, o.setup.directory()), session: s, input: input, args: o.setupArgs(),
		tail: int64(o.tail),
	}
	b.Open(ctx, func(ctx context.Context) (run.Runtime, error) { err := s.connect(ctx); return s.runtime, err })
	to := bundle.Archive{
		File: o.output, Directory: fmt.Sprintf("kcpctl-%s-%s", s.topology.Name, stamp), Now: now, Contents: b.contents,
	}
	if err := b.Write(ctx, to, b.parts()); err != nil {
		return err
	}
	b.print(o.output)
	return nil
}

// readStdin returns the setup file if it is stdin: each part reads it again.
func (o *bundleOptions) readStdin() (string, error) {
	if o.setup.file != setup.Stdin {
		return "", nil
	}
	text, err := io.ReadAll(o.env.Streams.In)
	return string(text), err
}

// setupArgs are the flags that lead to the same setup in other commands.
func (o *bundleOptions) setupArgs() []string {
	var out []string
	ours := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&setupFlags{}).add(ours)
	o.flags.Visit(func(f *pflag.Flag) {
		if ours.Lookup(f.Name) == nil {
			return
		}
		values := []string{f.Value.String()}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			values = many.GetSlice()
		}
		for _, v := range values {
			out = append(out, "--"+f.Name+"="+v)
		}
	})
	return out
}

// withStreams returns an environment with other streams.
func (e *Env) withStreams(s *ui.Streams) *Env {
	next := *e
	next.Streams = s
	return &next
}
