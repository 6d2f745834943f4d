package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type initOptions struct {
	env     *Env
	example string
	file    string
	force   bool
	// installation names a new installation in the file.
	installation bool
}

func newInitCmd(env *Env) *cobra.Command {
	o := &initOptions{env: env}
	c := &cobra.Command{
		Use:   "init",
		Short: "Write an example setup file to start from",
		Long:  "Write an example of a setup file. The examples:\n\n" + described(examples.Names()),
		Example: `  kcpctl init
  kcpctl init --example ha -f prod.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	f := c.Flags()
	f.StringVar(&o.example, "example", "sharded", "example to start from: "+either(examples.Names()))
	completeFlag(c, "example", func(*cobra.Command) (all []string) {
		for _, name := range examples.Names() {
			all = append(all, cobra.CompletionWithDesc(name, examples.Purpose(name)))
		}
		return all
	})
	f.StringVarP(&o.file, "file", "f", defaultFile, "file to write, or - for stdout")
	allow(f, anywhere, "file")
	f.BoolVar(&o.installation, "installation", false,
		"also name a new installation in metadata.installation: commands then refuse any other installation")
	f.BoolVar(&o.force, "force", false, "overwrite an existing file")
	return c
}

// described returns a line for each example.
func described(names []string) string {
	const indent, columns = 17, 100
	var b strings.Builder
	for _, name := range names {
		text := ui.Wrap(examples.Purpose(name), columns-indent)
		fmt.Fprintf(&b, "  %-*s%s\n", indent-2, name, strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent)))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (o *initOptions) run() error {
	text, err := examples.Read(o.example)
	if err != nil {
		return unknownName("example", o.example, examples.Names())
	}
	if o.installation {
		if text, err = withInstallation(o.example, text); err != nil {
			return err
		}
	}
	if o.file == setup.Stdin {
		_, err := o.env.Streams.Out.Write(text)
		return err
	}
	err = createFile(o.file, text, o.force, "name another file with -f, or overwrite this one with --force")
	if err != nil {
		return err
	}
	create := ""
	if o.installation {
		create = " --" + deploy.FlagNewInstallation
	}
	fmt.Fprintf(o.env.Streams.Err, "%s written. Review it, then run: %s up -f %s%s\n", o.file, o.env.program(),
		quote(o.file), create)
	return nil
}

// withInstallation returns an example with the ID of a new installation.
func withInstallation(name string, text []byte) ([]byte, error) {
	f, err := setup.Parse(name, text)
	if err != nil {
		return nil, err
	}
	f, err = f.SetInstallation(pki.NewInstallation(f.Setup.Metadata.Name, "").ID)
	if err != nil {
		return nil, err
	}
	return f.Data, nil
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
