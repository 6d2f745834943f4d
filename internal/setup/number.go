package setup

import (
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fileMode is the type of the permissions of a file. They are written in octal, with a leading zero, and Kubernetes reads them
// so.
type fileMode int32

// isFileMode reports whether a field of a pod has the permissions of a file.
func isFileMode(name string, t reflect.Type) bool {
	return (name == "defaultMode" || name == "mode") && t == reflect.TypeFor[*int32]()
}

// ambiguous refuses a whole number that readers of YAML do not agree about: YAML 1.1 takes 010 for 8 and 1_0 for 10, YAML 1.2
// takes them for 10 and for text.
func (d *decoder) ambiguous(n *yaml.Node, t reflect.Type, p *field.Path) (refused bool) {
	if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" {
		return false
	}
	plain := strings.ReplaceAll(n.Value, "_", "")
	if t != reflect.TypeFor[fileMode]() {
		plain = regexp.MustCompile(`^\+?(-?)0+([0-9]+)$`).ReplaceAllString(plain, "$1$2")
	}
	switch {
	case plain == n.Value:
		return false
	case strings.Contains(n.Value, "_"):
		d.fail(p, n, n.Value+" is a number to some readers of YAML and text to others", "write "+plain)
	default:
		d.fail(p, n, n.Value+" is octal to some readers of YAML and decimal to others", "write "+plain)
	}
	return true
}
