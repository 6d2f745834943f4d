package cmd

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/runtime/local"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
)

type downloadOptions struct {
	env          *Env
	file, kcpURL string
}

// newDownloadCmd is for caches of CI jobs, and machines that copy the binaries elsewhere: up --local downloads what it
// needs.
func newDownloadCmd(env *Env) *cobra.Command {
	o := &downloadOptions{env: env}
	c := &cobra.Command{
		Use:   "download",
		Short: "Download the kcp binaries that a setup needs on this machine, and print their directory",
		Example: `  kcpctl download
  kcpctl download -f prod.yaml --kcp-url https://mirror.example.com/kcp`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	f := c.Flags()
	f.StringVarP(&o.file, "file", "f", defaultFile, "setup file, - for stdin")
	f.StringVar(&o.kcpURL, "kcp-url", "", "mirror of kcp's release page")
	allow(f, anywhere, "file", "kcp-url")
	return c
}

func (o *downloadOptions) run(ctx context.Context) error {
	f, err := setup.Load(o.file, o.env.Streams.In)
	if err != nil {
		return err
	}
	dirs := local.UserDirs(o.env.Getenv)
	if err := dirs.Validate(); err != nil {
		return err
	}
	l, err := local.NewLayout(dirs.State, f.Setup.Metadata.Name, 0)
	if err != nil {
		return err
	}
	t, err := l.Topology(f.Setup)
	if err != nil {
		return err
	}
	// The objects name the binaries. Their certificates are not used.
	res, err := pki.Ensure(t, &pki.State{}, pki.Options{Now: o.env.Now()})
	if err != nil {
		return err
	}
	objects, err := render.Objects(t, res.State)
	if err != nil {
		return err
	}
	source := binarySource(dirs, o.kcpURL, (&reporter{env: o.env}).note)
	rt := local.New(t, l, local.Options{Now: o.env.Now, Binaries: local.Binaries{Source: source}})
	found, err := rt.Download(ctx, objects)
	for _, dir := range found {
		fmt.Fprintln(o.env.Streams.Out, dir)
	}
	return err
}

// binarySource is where kcp's binaries for this machine are downloaded from.
func binarySource(dirs local.Dirs, url string, note func(string)) download.Source {
	return download.Source{
		URL: url, Dir: dirs.Cache, OS: runtime.GOOS, Arch: runtime.GOARCH, Progress: downloadProgress(note),
	}
}
