package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/setup"
)

type initOptions struct {
	env     *Env
	example string
	file    string
	force   bool
}

func newInitCmd(env *Env) *cobra.Command {
	o := &initOptions{env: env}
	c := &cobra.Command{
		Use:   "init",
		Short: "Write an example setup file to start from",
		Example: `  kcpctl init
  kcpctl init --example ha -f prod.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	f := c.Flags()
	f.StringVar(&o.example, "example", "sharded", "example to start from: "+either(examples.Names()))
	completeFlag(c, "example", fixed(examples.Names()...))
	f.StringVarP(&o.file, "file", "f", defaultFile, "file to write, or - for stdout")
	allow(f, anywhere, "file")
	f.BoolVar(&o.force, "force", false, "overwrite an existing file")
	return c
}

func (o *initOptions) run() error {
	text, err := examples.Read(o.example)
	if err != nil {
		return unknownName("example", o.example, examples.Names())
	}
	if o.file == setup.Stdin {
		_, err := o.env.Streams.Out.Write(text)
		return err
	}
	err = createFile(o.file, text, o.force, "name another file with -f, or overwrite this one with --force")
	if err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "%s written. Review it, then run: kcpctl up -f %s\n", o.file, quote(o.file))
	return nil
}

// createFile writes a new file. hint is what to do if it exists and must not be overwritten.
func createFile(path string, text []byte, overwrite bool, hint string) error {
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if overwrite {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return clierr.New(clierr.BadInput, hint, "%s already exists", path)
	}
	if err != nil {
		return fmt.Errorf("write setup: %w", err)
	}
	if _, err := f.Write(text); err != nil {
		return errors.Join(fmt.Errorf("write setup: %w", err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write setup: %w", err)
	}
	return nil
}
