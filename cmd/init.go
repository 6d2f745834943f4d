package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/clierr"
)

type initOptions struct {
	*globalOptions
	example string
	file    string
	force   bool
}

func newInitCmd(g *globalOptions) *cobra.Command {
	o := &initOptions{globalOptions: g}
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a setup file to start from",
		Example: `  kcpctl init
  kcpctl init --example ha -f prod.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	c.Flags().StringVar(&o.example, "example", "sharded", "what to start from: "+strings.Join(examples.Names(), ", "))
	c.Flags().StringVarP(&o.file, "file", "f", "kcp.yaml", "file to write, - for stdout")
	allow(c.Flags(), anywhere(), "file")
	c.Flags().BoolVar(&o.force, "force", false, "replace the file if there is one")
	completeFlag(c, "example", these(examples.Names()...))
	return c
}

func (o *initOptions) run() error {
	text, err := examples.Read(o.example)
	if err != nil {
		return clierr.New(clierr.BadInput, "use one of "+strings.Join(examples.Names(), ", "), "there is no example %q", o.example)
	}
	if o.file == "-" {
		_, err := o.Streams.Out.Write(text)
		return err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if o.force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(o.file, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return clierr.New(clierr.BadInput, "name another file with -f, or replace it with --force", "%s exists", o.file)
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
	fmt.Fprintf(o.Streams.Err, "%s written. Look at it, then run: kcpctl up -f %s\n", o.file, quote(o.file))
	return nil
}
