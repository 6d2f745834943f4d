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

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// The values of -o that several commands know.
const (
	outputJSON       = "json"
	outputYAML       = "yaml"
	outputJSONPath   = "jsonpath=TEMPLATE"
	outputGoTemplate = "go-template=TEMPLATE"
)

// forPrograms are the formats of a result that has an apiVersion and a kind. The templates are kubectl's.
func forPrograms() []string {
	return []string{outputJSON, outputYAML, outputJSONPath, outputGoTemplate}
}

// addOutput gives a command its -o. A value that is none of the formats is refused before the command does anything. Where
// there is no default, the command prints for people without -o.
func addOutput(c *cobra.Command, value *string, byDefault string, formats ...string) {
	addOutputWithHelp(c, value, byDefault, either(formats), formats...)
}

// addEvents gives a command that runs something its -o.
func addEvents(c *cobra.Command, value *string) {
	addOutputWithHelp(c, value, "", "json: one event per line on stdout", outputJSON)
}

func addOutputWithHelp(c *cobra.Command, value *string, byDefault, help string, formats ...string) {
	c.Flags().StringVarP(value, "output", "o", byDefault, help)
	c.PreRunE = func(*cobra.Command, []string) error {
		*value = cmp.Or(*value, byDefault)
		return checkOutput(*value, formats)
	}
	var begun []string
	for _, f := range formats {
		begun = append(begun, strings.TrimSuffix(f, "TEMPLATE"))
	}
	completeFlag(c, "output", these(begun...))
}

// checkOutput refuses a value of -o that is none of the formats.
func checkOutput(value string, formats []string) error {
	if value == "" || slices.Contains(formats, value) && !strings.HasSuffix(value, "TEMPLATE") {
		return nil
	}
	if name, _, ok := strings.Cut(value, "="); ok && slices.Contains(formats, name+"=TEMPLATE") {
		_, err := templateOf(value)
		return err
	}
	return clierr.New(clierr.BadInput, "use -o "+either(formats), "unknown output format %q", value)
}

// templateOf makes a printer of jsonpath=TEMPLATE or go-template=TEMPLATE. What a result does not have prints as nothing, as
// with kubectl get.
func templateOf(value string) (printers.ResourcePrinter, error) {
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
	return clierr.New(clierr.BadInput, "templates are those of kubectl get", "template %q: %w", value, err)
}

// encode writes a result for programs.
func encode(w io.Writer, format string, result any) error {
	out, err := json.MarshalIndent(result, "", "  ")
	switch {
	case err != nil:
	case format == outputJSON:
		out = append(out, '\n')
	case format == outputYAML:
		out, err = yaml.JSONToYAML(out)
	default:
		return fill(w, format, out)
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// fill fills a template with a result.
func fill(w io.Writer, format string, result []byte) error {
	p, err := templateOf(format)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(result, &obj.Object); err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	var text bytes.Buffer
	if err := p.PrintObj(obj, &text); err != nil {
		// What the printers say goes on with all that they were given.
		why, _, _ := strings.Cut(err.Error(), ". Printing more information")
		return clierr.New(clierr.BadInput, "see what there is with -o json", "%s", why)
	}
	_, err = text.WriteTo(w)
	return err
}

// either lists alternatives: json, yaml or svg.
func either(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}
