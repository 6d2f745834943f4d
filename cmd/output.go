package cmd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The values of -o that several commands have.
const (
	outputJSON       = "json"
	outputYAML       = "yaml"
	outputJSONPath   = "jsonpath=TEMPLATE"
	outputGoTemplate = "go-template=TEMPLATE"
)

// machineFormats are the formats of a result that has an apiVersion and a kind. The templates are kubectl's.
var machineFormats = []string{outputJSON, outputYAML, outputJSONPath, outputGoTemplate}

// addOutput adds -o to a command. An unknown format is rejected before the command does anything. Without a default,
// the command prints text for humans if -o is not given.
func addOutput(c *cobra.Command, value *string, byDefault string, formats ...string) {
	addOutputWithHelp(c, value, byDefault, "print as `FORMAT`: "+either(formats), formats...)
}

// addEvents adds -o to a command that reports events: see events.
func addEvents(c *cobra.Command, value *string) {
	addOutputWithHelp(c, value, "", "print events as `FORMAT`: json, with one event per line on stdout", outputJSON)
	c.Flags().Lookup("output").Annotations = map[string][]string{reportsEvents: {}}
}

func addOutputWithHelp(c *cobra.Command, value *string, byDefault, help string, formats ...string) {
	c.Flags().StringVarP(value, "output", "o", byDefault, help)
	c.PreRunE = func(*cobra.Command, []string) error {
		*value = cmp.Or(*value, byDefault)
		return checkOutput(*value, formats)
	}
	values := mapped(formats, func(f string) string { return strings.TrimSuffix(f, "TEMPLATE") })
	completeFlag(c, "output", fixed(values...))
}

// checkOutput rejects a value of -o that is not one of the formats.
func checkOutput(value string, formats []string) error {
	if value == "" || slices.Contains(formats, value) && !strings.HasSuffix(value, "TEMPLATE") {
		return nil
	}
	if name, _, ok := strings.Cut(value, "="); ok && slices.Contains(formats, name+"=TEMPLATE") {
		_, err := templatePrinter(value)
		return err
	}
	return clierr.New(clierr.BadInput, "use -o "+either(formats), "unknown output format %q", value)
}

// checkOutputFile rejects a format as the value of -o in commands in which -o names a file.
func checkOutputFile(value string) error {
	format, _, template := strings.Cut(value, "=")
	known := append([]string{outputTable, outputWide, "name"}, machineFormats...)
	if !slices.Contains(known, value) && !(template && slices.Contains(known, format+"=TEMPLATE")) {
		return nil
	}
	return clierr.New(clierr.BadInput,
		"omit -o to print to stdout, or write -o ./"+quote(value)+" for a file of this name",
		"-o names the file to write, and the content is always YAML: %q is a format", value)
}

// templatePrinter returns the printer of jsonpath=TEMPLATE or go-template=TEMPLATE. Missing fields print as nothing,
// as with kubectl get.
func templatePrinter(value string) (printers.ResourcePrinter, error) {
	name, text, _ := strings.Cut(value, "=")
	if name+"=TEMPLATE" == outputJSONPath {
		p, err := printers.NewJSONPathPrinter(text)
		if err != nil {
			return nil, badTemplate(value, err)
		}
		p.AllowMissingKeys(true)
		return p, nil
	}
	p, err := printers.NewGoTemplatePrinter([]byte(text))
	if err != nil {
		return nil, badTemplate(value, err)
	}
	p.AllowMissingKeys(true)
	return p, nil
}

func badTemplate(value string, err error) error {
	return clierr.New(clierr.BadInput, "the syntax is that of kubectl get -o", "invalid template %q: %w", value, err)
}

// list is a list of things of a setup, as a result in machineFormats.
type list[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Items      []T    `json:"items"`
}

// listOf returns a list. Without items it is empty, and not null.
func listOf[T any](kind, setup string, items []T) list[T] {
	return list[T]{APIVersion: v1alpha1.APIVersion, Kind: kind, Name: setup, Items: append([]T{}, items...)}
}

// partialList is a list without what is on clusters that cannot be reached.
type partialList[T any] struct {
	list[T]
	// Unreachable are the clusters that cannot be reached: their items are not known.
	Unreachable []string `json:"unreachable,omitempty"`
}

// withReachable returns the components whose clusters can be reached, and the names of the clusters of the others.
func withReachable(all []*topology.Component, lost []plan.Unreachable) (in []*topology.Component, without []string) {
	for _, c := range all {
		switch _, unknown := plan.UnreachableIn(lost, c.Cluster.Name); {
		case !unknown:
			in = append(in, c)
		case !slices.Contains(without, c.Cluster.Name):
			without = append(without, c.Cluster.Name)
		}
	}
	return in, without
}

// unknownOn is the error of a result that lacks things because clusters cannot be reached, or nil.
func unknownOn(what string, clusters []string) error {
	if len(clusters) == 0 {
		return nil
	}
	return clierr.New(clierr.Unknown, "run it again when they answer",
		"the %s are not known of clusters that cannot be reached: %s", what, strings.Join(clusters, ", "))
}

// encode writes a result in one of machineFormats.
func encode(w io.Writer, format string, result any) error {
	out, err := json.MarshalIndent(result, "", "  ")
	switch {
	case err != nil:
	case format == outputJSON:
		out = append(out, '\n')
	case format == outputYAML:
		out, err = yaml.JSONToYAML(out)
	default:
		return printTemplate(w, format, out)
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = w.Write(out)
	return err
}

func printTemplate(w io.Writer, format string, result []byte) error {
	p, err := templatePrinter(format)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(result, &obj.Object); err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	var text bytes.Buffer
	if err := p.PrintObj(obj, &text); err != nil {
		// The rest of the error is a dump of the whole result.
		cause, _, _ := strings.Cut(err.Error(), ". Printing more information")
		return clierr.New(clierr.BadInput, "see all fields with -o json", "%s", cause)
	}
	_, err = text.WriteTo(w)
	return err
}
