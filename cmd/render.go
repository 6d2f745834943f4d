package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/outputdir"
)

// The values of --secrets.
const (
	secretsInclude = "include"
	secretsOmit    = "omit"
	secretsRedact  = "redact"
)

var secretsModes = []string{secretsInclude, secretsOmit, secretsRedact}

// forArgoCD is the value of --annotate for Argo CD, which applies objects in the order of this annotation
// (argo-cd: docs/user-guide/sync-waves.md).
const (
	forArgoCD      = "argocd"
	annotationWave = "argocd.argoproj.io/sync-wave"
)

type renderOptions struct {
	env       *Env
	setup     setupFlags
	outputDir string
	secrets   string
	redact    bool
	annotate  string
	// workspaces prints the objects in workspaces, and none on clusters. Both together would look like objects
	// of one place to other tools: kubectl would bind the roles of a tenant on the cluster.
	workspaces bool
}

func newRenderCmd(env *Env) *cobra.Command {
	o := &renderOptions{env: env}
	c := &cobra.Command{
		Use:   "render",
		Short: "Print the manifests that up would apply",
		Long: `Print exactly what up applies to the clusters of the setup, in the same order. The certificates
come from the setup's PKI store: with the store Cluster, from the cluster. With --pki-dir they come from a
directory: no cluster is contacted, and missing certificates are created and stored there.

Objects in workspaces of kcp are left out, because kubectl would apply them to the cluster. up applies
them, and --workspaces prints only them.

With --output-dir it writes one file per object, readable only by its owner, and removes the files that
a previous render of the same setup wrote and that are no longer needed. The list .kcpctl-NAME.sha256 in
that directory has the files that render wrote. It does not remove files that were changed since, and if it
had to replace one, such as an encrypted Secret, it names all such files and writes nothing.

On a terminal the values of Secrets are redacted unless --secrets says otherwise.`,
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
	f := c.Flags()
	o.setup.add(f)
	o.setup.local.addBasePort(f)
	f.StringVar(&o.outputDir, "output-dir", "",
		"write one file per object to this directory, and remove those of a previous render")
	f.StringVar(&o.secrets, "secrets", "",
		"what to do with Secrets: "+either(secretsModes)+" (default: include; on a terminal redact)")
	completeFlag(c, "secrets", fixed(secretsModes...))
	f.BoolVar(&o.redact, "redact", false, "same as --secrets=redact")
	excludeFlag(f, "redact", "secrets")
	f.StringVar(&o.annotate, "annotate", "",
		"annotate the objects for another tool: argocd, with sync waves in the order in which up applies components")
	completeFlag(c, "annotate", fixed(forArgoCD))
	f.BoolVar(&o.workspaces, "workspaces", false,
		"print only the objects that up applies in workspaces, which are not for kubectl apply")
	excludeFlag(f, "workspaces", "output-dir", "annotate")
	return c
}

func (o *renderOptions) complete() error {
	switch {
	case o.redact:
		o.secrets = secretsRedact
	case o.secrets == "" && o.outputDir == "" && o.env.Streams.Out.TTY:
		o.secrets = secretsRedact
	case o.secrets == "":
		o.secrets = secretsInclude
	}
	if !slices.Contains(secretsModes, o.secrets) {
		return clierr.New(clierr.BadInput, oneOf(secretsModes), "invalid value %q for --secrets", o.secrets)
	}
	if o.annotate != "" && o.annotate != forArgoCD {
		return clierr.New(clierr.BadInput, "use "+forArgoCD, "invalid value %q for --annotate", o.annotate)
	}
	return nil
}

func (o *renderOptions) run(ctx context.Context) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	o.env.notes(s.file)
	docs, err := o.documents(ctx, s)
	if err != nil {
		return err
	}
	if o.outputDir != "" {
		return o.writeFiles(s, docs)
	}
	if n := clustersOf(docs); n > 1 {
		o.env.note(fmt.Sprintf("these are the objects of %d clusters: to apply them, write a directory for each "+
			"with --output-dir", n))
	}
	out := bufio.NewWriter(o.env.Streams.Out)
	for _, d := range docs {
		fmt.Fprintf(out, "---\n%s", d.text)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	return nil
}

// documents renders the setup with the certificates of its store.
func (o *renderOptions) documents(ctx context.Context, s *session) ([]document, error) {
	options := deploy.DesiredOptions{Now: o.env.Now()}
	if s.directory != nil {
		options.Offline = true
		desired, err := deploy.LoadDesired(ctx, s.topology, s.directory, options)
		if err != nil {
			return nil, err
		}
		docs, err := o.render(desired)
		if err != nil {
			return nil, err
		}
		return docs, desired.Save(ctx)
	}
	if err := s.connect(ctx); err != nil {
		return nil, offlineHint(err)
	}
	defer s.close()
	desired, err := deploy.LoadDesired(ctx, s.topology, s.store(), options)
	if errors.As(err, new(*deploy.LoadError)) {
		return nil, offlineHint(err)
	}
	if err != nil {
		return nil, err
	}
	if len(desired.Loaded.CAs) == 0 {
		o.env.note(fmt.Sprintf("%s does not exist yet: the certificates in this output are temporary; kcpctl up "+
			"creates the ones that stay", s.store()))
	}
	return o.render(desired)
}

func offlineHint(err error) error {
	hint := "to render without a cluster, keep the certificates in a directory: --pki-dir DIR"
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}

// document is an object as YAML. It has a cluster and a path, or a workspace.
type document struct {
	cluster, workspace string
	path, text         string
}

// render returns the objects on clusters, or the ones in workspaces, each under a comment with its component.
func (o *renderOptions) render(desired *deploy.Desired) ([]document, error) {
	docs, err := deploy.RenderAs(desired, o.document)
	if err != nil {
		return nil, err
	}
	docs = slices.DeleteFunc(docs, func(d document) bool { return d.text == "" })
	all := len(docs)
	docs = slices.DeleteFunc(docs, func(d document) bool { return (d.workspace != "") != o.workspaces })
	if n := all - len(docs); n > 0 && !o.workspaces {
		o.env.note(fmt.Sprintf("%s in workspaces left out: kcpctl up applies them, and kcpctl render --workspaces "+
			"prints them", gather.Count(n, "object", "objects")))
	}
	return docs, nil
}

// document returns an object as YAML. It is empty if the object is to be omitted.
func (o *renderOptions) document(obj render.Object) (document, error) {
	if obj.GetKind() == "Secret" {
		switch o.secrets {
		case secretsOmit:
			return document{}, nil
		case secretsRedact:
			obj = obj.Redacted()
		}
	}
	if o.annotate == forArgoCD && obj.Workspace == "" {
		obj = withWave(obj)
	}
	text, err := obj.YAML()
	if err != nil {
		return document{}, err
	}
	if at := obj.Workspace; at != "" {
		return document{workspace: at, text: fmt.Sprintf("# %s, in workspace %s\n%s", obj.Component, at, text)}, nil
	}
	name := topology.FileName(strings.ToLower(obj.GetKind())+"-"+obj.GetName()) + ".yaml"
	dir := topology.FileName(string(obj.Component))
	if obj.GetKind() == kind.Namespace.Kind { // kubectl apply -R reads files in the order of their names
		dir = ""
		name = "0-" + name
	}
	return document{
		cluster: obj.Cluster,
		path:    filepath.Join(obj.Cluster, dir, name),
		text:    fmt.Sprintf("# %s\n%s", obj.Component, text),
	}, nil
}

// clustersOf returns the number of clusters that documents are for.
func clustersOf(docs []document) int {
	clusters := map[string]bool{}
	for _, d := range docs {
		if d.workspace == "" {
			clusters[d.cluster] = true
		}
	}
	return len(clusters)
}

// withWave returns an object with the sync wave of its component: kinds of components that come up first have the lowest.
func withWave(obj render.Object) render.Object {
	out := obj.DeepCopy()
	annotations := out.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationWave] = strconv.Itoa(slices.Index(topology.Kinds(), obj.Component.Kind()))
	out.SetAnnotations(annotations)
	obj.Unstructured = out
	return obj
}

// writeFiles writes one file per object, and removes the files of objects that the setup no longer has.
func (o *renderOptions) writeFiles(s *session, docs []document) error {
	files := make([]outputdir.File, len(docs))
	for i, d := range docs {
		files[i] = outputdir.File{Path: d.path, Data: []byte(d.text)}
	}
	res, err := outputdir.Write(o.outputDir, s.topology.Name, files)
	if err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	for _, path := range res.Kept {
		o.env.note(filepath.Join(o.outputDir, path) +
			" is no longer rendered, but stays because it was changed after render wrote it")
	}
	msg := fmt.Sprintf("%s written to %s", gather.Count(len(files), "file", "files"), o.outputDir)
	if n := len(res.Removed); n > 0 {
		msg += fmt.Sprintf(", %d of a previous render removed", n)
	}
	fmt.Fprintln(o.env.Streams.Err, msg)
	return nil
}
