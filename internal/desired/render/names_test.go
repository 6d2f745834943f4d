package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Names of objects are limited and compared before anything is rendered, by the parts that topology lists for each
// kind: all rendered names must be among them.
func TestObjectNamesAreKnown(t *testing.T) {
	setups := map[string]string{"embedded": "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n" +
		"  etcd: {embedded: {storage: 1Gi}}\n  cacheServer: {etcd: {embedded: {ephemeral: false}}}\n  virtualWorkspaces: [{name: one}]\n"}
	for _, name := range examples.Names() {
		setups[name] = example(t, name)
	}
	for name, text := range setups {
		top, _, objects := rendered(t, text)
		for _, o := range objects {
			if o.Workspace != "" {
				continue // no prefix tells the names in a workspace from those of another setup
			}
			c := top.Component(o.Component)
			if c.Kind == topology.Agent && o.GetNamespace() == "" {
				continue // the names of what it publishes are those of its cluster
			}
			known := []string{c.Object()}
			for _, part := range c.Kind.Parts() {
				known = append(known, c.Object(part))
			}
			if c.Kind == topology.Base {
				known = []string{c.Cluster.Namespace, top.Object(topology.CAPart), top.Object(topology.ServiceAccountPart)}
			}
			require.Contains(t, known, o.GetName(), "%s: %s %s", name, o.GetKind(), o.Component)
		}
	}
}
