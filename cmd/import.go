package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/file/importer"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type importOptions struct {
	env *Env
	// setup leads to the cluster of a running installation, and with finish to the setup.
	setup  setupFlags
	files  []string
	output string
	name   string
	// rootShard is the RootShard of the installation to read, if the namespace has several.
	rootShard string
	// fromCluster reads a running installation, and finish removes what kcp-operator has left of it.
	fromCluster, finish, yes, dryRun bool
}

func newImportCmd(env *Env) *cobra.Command {
	o := &importOptions{env: env}
	c := &cobra.Command{
		Use:   "import {-f FILE... | --from-cluster | --finish}",
		Short: "Write a setup file from kcp-operator or from values of kcp's helm chart, and take over what runs",
		Long: `Read objects of kcp-operator, with the issuers of cert-manager that they refer to, or values of the helm
chart kcp, and print a setup file with comments. The input is YAML or JSON with any number of documents,
including the lists that kubectl get -o yaml prints.

Every field of the input is in the setup file, or reported with its position, the reason, and what to do
instead.

With -f, import connects to no cluster. With --from-cluster, it reads the objects of a running kcp-operator,
prints how kcpctl takes over the installation, and changes nothing. --finish is the last step of this: it
removes the servers and the objects of kcp-operator, as soon as those of kcpctl serve.`,
		Example: `  kcpctl import -f manifests/ -o kcp.yaml
  kubectl get rootshards,shards,frontproxies,cacheservers,virtualworkspaces,kubeconfigs.operator.kcp.io -o yaml | kcpctl import -f -
  kcpctl import -f values.yaml -f values-prod.yaml --name kcp -n kcp
  kcpctl import --from-cluster -n kcp -o kcp.yaml
  kcpctl import --finish --dry-run
  kcpctl import --finish`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	f := c.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "file or directory to read, or - for stdin (repeatable)")
	f.StringVarP(&o.output, "output", "o", "", "write to the new `FILE`, or to stdout with - (default: stdout)")
	f.StringVar(&o.name, "name", "",
		"name of the setup (default: the name of the RootShard with the suffix -kcp, or kcp for a chart)")
	f.BoolVar(&o.fromCluster, "from-cluster", false, "read the objects of kcp-operator from a namespace (default: kcp)")
	f.StringVar(&o.rootShard, "root-shard", "",
		"with --from-cluster: the RootShard to read, if the namespace has several")
	f.BoolVar(&o.finish, "finish", false,
		"remove what kcp-operator has left of an installation that kcpctl has taken over")
	f.BoolVar(&o.dryRun, "dry-run", false, "with --finish: print what would be removed, and change nothing")
	addYes(f, &o.yes)
	o.setup.addWithShorthand(f, "")
	requireFlag(f, "from-cluster", "root-shard")
	requireFlag(f, "finish", "dry-run", "file", "pki-dir")
	excludeFlag(f, "finish", "name", "output", "from-cluster", "filename")
	excludeFlag(f, "filename", "kubeconfig", "context", "as", "as-group", "from-cluster")
	f.Lookup("namespace").Usage = "namespace of kcp-operator's objects, or with -f of objects that have none"
	return c
}

func (o *importOptions) check() error {
	switch {
	case len(o.files) == 0 && !o.fromCluster && !o.finish:
		return clierr.New(clierr.BadInput,
			"name files or directories with -f, or - for stdin; or read a running installation with --from-cluster",
			"-f is required")
	case o.setup.local.enabled:
		return clierr.New(clierr.BadInput, omitLocal, "import reads files or a cluster, not --local")
	}
	return checkOutputFile(o.output)
}

func (o *importOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.finish {
		return o.removeRemains(ctx)
	}
	options := importer.Options{Name: o.name, Namespace: o.setup.namespace}
	read := o.sources
	if o.fromCluster {
		options.Context = o.setup.context
		options.Kubeconfig = o.setup.kubeconfig
		options.Live = true
		read = func() ([]importer.Source, error) { return o.clusterSources(ctx) }
	}
	sources, err := read()
	if err != nil {
		return err
	}
	result, err := importer.Import(sources, options)
	if err != nil {
		if result != nil {
			o.printFindings(result.Findings)
		}
		return err
	}
	if o.toFile() {
		err = createFile(o.output, result.Text, false, "name another file with -o")
	} else {
		_, err = o.env.Streams.Out.Write(result.Text)
	}
	if err != nil {
		return err
	}
	o.printFindings(result.Findings)
	o.env.notes(result.File)
	if o.fromCluster {
		o.printSteps(result)
		return nil
	}
	if o.toFile() {
		fmt.Fprintf(o.env.Streams.Err, "%s written. Review it, then run: %s up --dry-run -f %s\n",
			o.output, o.env.program(), quote(o.output))
	}
	return nil
}

// toFile reports whether the setup goes to a file. A dash is stdout.
func (o *importOptions) toFile() bool { return o.output != "" && o.output != setup.Stdin }

// sources reads all files. It reports all that cannot be read.
func (o *importOptions) sources() ([]importer.Source, error) {
	var out []importer.Source
	var errs []error
	for _, name := range o.files {
		if name == setup.Stdin {
			data, err := io.ReadAll(o.env.Streams.In)
			out, errs = append(out, importer.Source{Name: "<stdin>", Data: data}), append(errs, err)
			continue
		}
		files, err := manifests(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			out, errs = append(out, importer.Source{Name: f, Data: data}), append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, clierr.New(clierr.BadInput, "name existing files or directories with -f, or - for stdin",
			"read the input: %w", err)
	}
	return out, nil
}

// manifests returns a file, or the YAML and JSON files of a directory in order.
func manifests(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no .yaml, .yml or .json files", name)
	}
	return out, nil
}

// printFindings prints the findings by kind, the most important first.
func (o *importOptions) printFindings(findings []importer.Finding) {
	w := o.env.Streams.Err
	for _, kind := range importer.Kinds() {
		title := strings.ToUpper(string(kind[:1])) + string(kind[1:])
		for _, f := range findings {
			if f.Kind != kind {
				continue
			}
			if title != "" {
				fmt.Fprintf(w, "%s:\n", title)
				title = ""
			}
			fmt.Fprintf(w, "  %s\n", w.Text(f.String()))
		}
	}
}
