package importer

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// releaseKind is a kind of object with which other tools install a chart.
type releaseKind struct {
	group, kind string
	// name is the field with the name of the chart, and values the field with its values.
	name, values string
	// others are fields with further values, which import does not read.
	others []string
}

func releaseKinds() []releaseKind {
	return []releaseKind{
		{"helm.toolkit.fluxcd.io", "HelmRelease", "spec.chart.spec.chart", "spec.values", []string{"spec.valuesFrom"}},
		{"argoproj.io", "Application", "spec.source.chart", "spec.source.helm.valuesObject",
			[]string{"spec.source.helm.values", "spec.source.helm.valueFiles", "spec.source.helm.parameters",
				"spec.sources"}},
		{"helm.cattle.io", "HelmChart", "spec.chart", "", []string{"spec.valuesContent", "spec.set"}},
	}
}

// release reads the values in an object with which another tool installs the chart kcp. It reports whether it is one.
func (r *reader) release(o *object) bool {
	for _, k := range releaseKinds() {
		if !strings.HasPrefix(o.source, "the API "+k.group+"/") || o.kind != k.kind {
			continue
		}
		name, values := fieldAt(o.root, k.name), fieldAt(o.root, k.values)
		if name != nil && name.Value[strings.LastIndexByte(name.Value, '/')+1:] != chartName {
			return false
		}
		read := values != nil && isValues(values)
		if read {
			r.chartValues(o.file, values)
			o.find(NotNeeded, "import reads the values in "+k.values, "")
		}
		for _, path := range k.others {
			if fieldAt(o.root, path) != nil {
				read = true
				o.find(NotMapped, "import does not read values in "+path,
					"write them to a file, and import it, too: -f FILE")
			}
		}
		if read {
			r.others = append(r.others, o)
		}
		return read
	}
	return false
}

// fieldAt returns the field at a path below an object, or nil.
func fieldAt(n *yaml.Node, path string) *yaml.Node {
	for key := range strings.SplitSeq(path, ".") {
		n = lookup(n, key)
	}
	return n
}
