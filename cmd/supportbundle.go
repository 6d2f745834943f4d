package cmd

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// partTimeout is how long a part of a bundle may take: a cluster that does not answer must not delay the others much.
const partTimeout = time.Minute

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
	if o.output == "" {
		o.output = fmt.Sprintf("kcpctl-%s-%s.tar.gz", s.topology.Name, now.Format("20060102T150405Z"))
	}
	if _, err := os.Lstat(o.output); err == nil {
		return clierr.New(clierr.BadInput, "name another file with -o", "%s already exists", o.output)
	}
	defer s.close()
	b := &bundle{session: s, input: input, args: o.setupArgs(), tail: int64(o.tail), now: now}
	b.open(ctx)
	if err := b.write(ctx, o.output); err != nil {
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

// write writes the archive. An interrupted run leaves no file.
func (b *bundle) write(ctx context.Context, file string) error {
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.CloseWithError(b.pack(ctx, w))
	}()
	err := atomicfile.WriteFrom(file, r, 0o600)
	r.CloseWithError(err) // ends pack if the file cannot be written
	<-ended
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), removeIf(err == nil, file))
	}
	return err
}

// removeIf removes a file that was completed at the moment of an interrupt.
func removeIf(exists bool, file string) error {
	if !exists {
		return nil
	}
	return os.Remove(file)
}

// pack writes all parts as a compressed tar archive, and last the list of its files.
func (b *bundle) pack(ctx context.Context, to io.Writer) error {
	z := gzip.NewWriter(to)
	t := tar.NewWriter(z)
	add := func(name string, text []byte) error {
		header := &tar.Header{
			Name: path.Join(b.directory(), name), Mode: 0o600, Size: int64(len(text)), ModTime: b.now,
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		_, err := t.Write(text)
		return err
	}
	for _, p := range b.parts() {
		text, err := b.collect(ctx, p)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.files = append(b.files, bundleFile{p.file, p.about, err})
		if err := add(p.file, text); err != nil {
			return err
		}
	}
	if err := add("contents.txt", b.contents()); err != nil {
		return err
	}
	return errors.Join(t.Close(), z.Close())
}

// collect returns the text of a part without secrets. If it fails, the text ends with the reason.
func (b *bundle) collect(ctx context.Context, p bundlePart) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	text, err := p.text(limited)
	if err != nil && limited.Err() != nil {
		err = fmt.Errorf("not complete after %s: %w", partTimeout, err)
	}
	if err != nil {
		text = fmt.Appendf(text, "error: %v\n", err)
	}
	return b.secrets.Text(text), err
}
