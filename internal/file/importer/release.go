package importer

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// releaseKind is a kind of object with which other tools install a chart.
type releaseKind struct {
	group, kind string
	// name is the field with the name of the chart, version the field with its version, and values the field with its
	// values.
	name, version, values string
	// namespace is the field with the namespace of the installation. Without it, the installation is in the namespace
	// of the object if inOwn is set, and otherwise in one that the object does not say.
	namespace string
	inOwn     bool
	// others are fields with further values, which import does not read.
	others []string
	// clusters are fields with the cluster of the installation, which import does not read: they name no kubeconfig
	// context. release is the field with the name of the release, after which the chart names its objects.
	clusters []string
	release  string
}

func releaseKinds() []releaseKind {
	return []releaseKind{
		{"helm.toolkit.fluxcd.io", "HelmRelease", "spec.chart.spec.chart", "spec.chart.spec.version", "spec.values",
			"spec.targetNamespace", true,
			[]string{"spec.valuesFrom", "spec.chart.spec.valuesFiles", "spec.postRenderers"},
			[]string{"spec.kubeConfig"}, "spec.releaseName"},
		{"argoproj.io", "Application", "spec.source.chart", "spec.source.targetRevision",
			"spec.source.helm.valuesObject", "spec.destination.namespace", false,
			[]string{"spec.source.helm.values", "spec.source.helm.valueFiles", "spec.source.helm.parameters",
				"spec.source.helm.fileParameters", "spec.sources"},
			[]string{"spec.destination.server", "spec.destination.name"}, "spec.source.helm.releaseName"},
		{"helm.cattle.io", "HelmChart", "spec.chart", "spec.version", "", "spec.targetNamespace", true,
			[]string{"spec.valuesContent", "spec.set"}, nil, ""},
	}
}

// chartReleases are the releases of kcp that the versions of the chart have by default, since the oldest supported one
// (helm-charts: charts/kcp/Chart.yaml).
func chartReleases() map[string]string {
	return map[string]string{
		"0.12.0": "v0.28.0", "0.12.1": "v0.28.0", "0.12.2": "v0.28.0", "0.12.3": "v0.28.1", "0.12.4": "v0.28.1",
		"0.12.5": "v0.28.3", "0.12.6": "v0.28.3", "0.12.7": "v0.28.3", "0.12.8": "v0.28.3", "0.13.0": "v0.29.0",
		"0.14.0": "v0.30.0", "0.14.1": "v0.30.3", "0.15.0": "v0.30.3", "0.16.0": "v0.31.0", "0.16.1": "v0.31.1",
		"0.16.2": "v0.31.2", "0.16.3": "v0.32.0", "0.16.4": "v0.32.1", "0.16.5": "v0.32.2", "0.16.6": "v0.32.3",
	}
}

// chartVersion is the version of the chart that an object of another tool names.
type chartVersion struct {
	// text is empty if no object names one.
	text string
	// from has the position of the version.
	from value
}

// of returns the version of the chart in an object. Flux ignores the version of a chart that is not in a repository of
// charts.
func (k releaseKind) of(o *object) chartVersion {
	source := fieldAt(o.root, "spec.chart.spec.sourceRef.kind")
	n := fieldAt(o.root, k.version)
	if n == nil || n.Kind != yaml.ScalarNode || fieldAt(o.root, k.name) == nil ||
		source != nil && source.Value != "HelmRepository" {
		return chartVersion{}
	}
	keys := strings.Split(k.version, ".")
	return chartVersion{n.Value, value{o: o, file: o.file, key: n, node: n, at: field.NewPath(keys[0], keys[1:]...)}}
}

// installsIn returns the namespace into which an object installs the chart; empty if it does not say one.
func (k releaseKind) installsIn(o *object) string {
	if n := fieldAt(o.root, k.namespace); n != nil && n.Value != "" {
		return n.Value
	}
	if k.inOwn {
		return o.namespace
	}
	return ""
}

// release returns the release of kcp in this version of the chart, or "".
func (v chartVersion) release() string { return chartReleases()[strings.TrimPrefix(v.text, "v")] }

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
				why := "import does not read values in " + path
				instead := "write them to a file, and import it, too: -f FILE"
				if path == "spec.postRenderers" {
					why = "import does not read what " + path + " changes in objects"
					instead = "set it in podTemplate, in service or in spec.commonMetadata"
				}
				o.find(NotMapped, why, instead)
			}
		}
		if read {
			k.place(o)
			r.others = append(r.others, o)
			r.chart, r.namespace = k.of(o), k.installsIn(o)
		}
		return read
	}
	return false
}

// place reports fields that say where and under which name the chart is installed, and that import does not read.
func (k releaseKind) place(o *object) {
	for _, path := range k.clusters {
		if fieldAt(o.root, path) != nil {
			o.find(NotMapped, "import does not read the cluster in "+path,
				"set the kubeconfig context of that cluster: spec.clusters[].context")
		}
	}
	if k.release != "" && fieldAt(o.root, k.release) != nil {
		o.find(NotNeeded, "objects have the name of the setup, and not that in "+k.release, "")
	}
}

// fieldAt returns the field at a path below an object, or nil.
func fieldAt(n *yaml.Node, path string) *yaml.Node {
	for key := range strings.SplitSeq(path, ".") {
		n = lookup(n, key)
	}
	return n
}
