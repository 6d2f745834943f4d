package cmd

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// encode writes a result for programs: json or yaml.
func encode(w io.Writer, format string, result any) error {
	var out []byte
	var err error
	if format == "yaml" {
		out, err = yaml.Marshal(result)
	} else if out, err = json.MarshalIndent(result, "", "  "); err == nil {
		out = append(out, '\n')
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = w.Write(out)
	return err
}
