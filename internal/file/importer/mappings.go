package importer

// Mapping is how import maps a field of the input, and all fields below it.
type Mapping struct {
	// Of is the kind of the objects with the field. It is empty for values of the chart.
	Of string
	// Field is the field, such as spec.etcd.endpoints. A segment * is any key.
	Field string
	// To is the field of the setup file, relative to the component of the object, unless it begins with "spec." or
	// "metadata.". It is empty if there is no such field.
	To string
	// Kind is the kind of the finding about a field with an effect. It is empty if there is no finding.
	Kind Kind
	// Note says when the field becomes the field of the setup file, or what becomes of it without one.
	Note string
	// Reason is the reason of the finding, and Instead the next step.
	Reason, Instead string
}

// Mappings returns what import makes of each field of kcp-operator and cert-manager and of each value of the chart.
func Mappings() []Mapping {
	var out []Mapping
	for _, t := range append(tables(), table{rows: chartRows()}) {
		for _, r := range t.rows {
			out = append(out, Mapping{t.kind, r.path, r.to, r.kind, r.note, r.why, r.instead})
		}
	}
	return out
}

// Described is a kind of objects of kcp-operator, and the field of the setup file with what they describe.
type Described struct{ Kind, Field string }

// AllDescribed returns the kinds of objects that describe a part of a setup.
func AllDescribed() []Described {
	return []Described{
		{kindRootShard, "spec.rootShard"},
		{kindShard, "spec.shards[]"},
		{kindFrontProxy, "spec.frontProxies[]"},
		{kindCacheServer, "spec.cacheServer"},
		{kindVirtualWorkspace, "spec.virtualWorkspaces[]"},
		{kindKubeconfig, "spec.kubeconfigs[]"},
	}
}
