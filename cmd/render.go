package cmd

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/outputdir"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/render"
)

// The values of --secrets.
const (
	secretsInclude = "include"
	secretsOmit    = "omit"
	secretsRedact  = "redact"
)

type renderOptions struct {
	setupOptions
	outputDir string
	secrets   string
	redact    bool
}

func newRenderCmd(g *globalOptions) *cobra.Command {
	o := &renderOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "render",
		Short: "Print the manifests that up would apply",
		Long: `Render prints exactly what up applies, in the order in which it does. The certificates are those of the setup's PKI
store: for the store Cluster that is the cluster; with --pki-dir it is a folder, no cluster is asked, and what is missing
is made and kept there.

With --output-dir it writes a file per object that only its owner can read, and removes the files that an earlier render of the
same setup wrote there and this one does not. A list in the directory, .kcpctl-NAME.sha256, says which these are; a file that was
changed since stays.

On a terminal the content of Secrets is redacted unless --secrets says otherwise.`,
		Example: `  kcpctl render -f kcp.yaml --pki-dir pki | kubectl apply --server-side -f -
  kcpctl render --secrets=omit --output-dir manifests`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	o.addFlags(c.Flags())
	c.Flags().StringVar(&o.outputDir, "output-dir", "", "write a file per object below this folder, and remove those of an earlier render")
	c.Flags().StringVar(&o.secrets, "secrets", "", "include, omit or redact Secrets (default include, on a terminal redact)")
	c.Flags().BoolVar(&o.redact, "redact", false, "the same as --secrets=redact")
	completeFlag(c, "secrets", these(secretsInclude, secretsOmit, secretsRedact))
	return c
}

func (o *renderOptions) complete() error {
	switch {
	case o.redact:
		o.secrets = secretsRedact
	case o.secrets == "" && o.outputDir == "" && o.Streams.Out.TTY:
		o.secrets = secretsRedact
	case o.secrets == "":
		o.secrets = secretsInclude
	}
	if !slices.Contains([]string{secretsInclude, secretsOmit, secretsRedact}, o.secrets) {
		return clierr.New(clierr.BadInput, "use --secrets=include, omit or redact", "unknown treatment of secrets %q", o.secrets)
	}
	return nil
}

func (o *renderOptions) run(ctx context.Context) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	objects, err := s.render(ctx)
	if err != nil {
		return err
	}
	docs, err := o.documents(objects)
	if err != nil {
		return err
	}
	if o.outputDir != "" {
		return o.writeFiles(s, docs)
	}
	out := bufio.NewWriter(o.Streams.Out)
	for _, d := range docs {
		fmt.Fprintf(out, "---\n%s", d.text)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	return nil
}

// render renders the setup with the certificates that its store has.
func (s *session) render(ctx context.Context) ([]render.Object, error) {
	if st := s.directoryStore(); st != nil {
		res, err := s.ensureOffline(ctx)
		if err != nil {
			return nil, err
		}
		var objects []render.Object
		var g errgroup.Group
		g.Go(func() error { return st.Save(ctx, res.State) }) // thousands of files, written meanwhile
		g.Go(func() (err error) {
			objects, err = render.Objects(s.Topology, res.State)
			return err
		})
		return objects, g.Wait()
	}
	rt, err := s.open()
	if err != nil {
		return nil, offlineHint(err)
	}
	defer rt.Close()
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, offlineHint(err)
	}
	if len(state.CAs) == 0 {
		s.note(fmt.Sprintf("%s does not exist yet: these certificates are for this output only; kcpctl up makes those that stay", rt.Store()))
	}
	res, err := pki.Ensure(s.Topology, state, pki.Options{Now: s.Now()})
	if err != nil {
		return nil, err
	}
	return render.Objects(s.Topology, res.State)
}

func offlineHint(err error) error {
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: "to render without a cluster, let a folder keep the certificates: --pki-dir DIR"}
}

// note prints a remark about the run.
func (e *Env) note(msg string) { fmt.Fprintln(e.Streams.Err, e.Streams.Err.Text("note: "+msg)) }

type document struct {
	path string
	text string
}

// documents are the objects as YAML, each with the component it belongs to above it.
func (o *renderOptions) documents(objects []render.Object) ([]document, error) {
	if o.secrets == secretsOmit {
		objects = slices.DeleteFunc(objects, func(obj render.Object) bool { return obj.GetKind() == "Secret" })
	}
	docs := make([]document, len(objects))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, obj := range objects {
		g.Go(func() (err error) {
			if o.secrets == secretsRedact && obj.GetKind() == "Secret" {
				obj = obj.Redacted()
			}
			docs[i], err = documentOf(obj)
			return err
		})
	}
	return docs, g.Wait()
}

func documentOf(obj render.Object) (document, error) {
	text, err := obj.YAML()
	if err != nil {
		return document{}, err
	}
	name := strings.ToLower(obj.GetKind()) + "-" + obj.GetName() + ".yaml"
	return document{
		path: filepath.Join(obj.Cluster, strings.ReplaceAll(string(obj.Component), "/", "-"), name),
		text: fmt.Sprintf("# %s\n%s", obj.Component, text),
	}, nil
}

// writeFiles writes a file per object, and removes those of objects that the setup does not have any more.
func (o *renderOptions) writeFiles(s *session, docs []document) error {
	files := make([]outputdir.File, len(docs))
	for i, d := range docs {
		files[i] = outputdir.File{Path: d.path, Data: []byte(d.text)}
	}
	res, err := outputdir.Write(o.outputDir, s.Topology.Name, files)
	if err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	for _, path := range res.Kept {
		o.note(filepath.Join(o.outputDir, path) + " is not part of the setup any more, but was changed since render wrote it: it stays")
	}
	fmt.Fprintf(o.Streams.Err, "%d files written to %s", len(files), o.outputDir)
	if n := len(res.Removed); n > 0 {
		fmt.Fprintf(o.Streams.Err, ", %d removed that an earlier render wrote", n)
	}
	fmt.Fprintln(o.Streams.Err)
	return nil
}
