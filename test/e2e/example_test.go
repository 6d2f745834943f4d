//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
)

// exampleCluster matches an entry of spec.clusters in an example.
var exampleCluster = regexp.MustCompile(`(?m)^(  - name: (\S+)( .*)?\n)(?:    context: \S+\n)?    namespace: \S+\n`)

// newExample creates a setup from an example. If it has several clusters, they become namespaces of the one under test,
// or of those with the given kubeconfigs.
func newExample(t *testing.T, name string, elsewhere map[string]string) (*setup, []*cluster) {
	t.Helper()
	text, err := examples.Read(name)
	require.NoError(t, err)
	clusters := exampleCluster.FindAllStringSubmatch(string(text), -1)
	if len(clusters) == 0 {
		s := newCluster(t, name)
		return s, []*cluster{s.runtime.(*cluster)}
	}
	kubeconfigs := map[string]string{}
	for _, c := range clusters {
		kubeconfigs[c[2]] = cmp.Or(elsewhere[c[2]], given(t, "E2E_KUBECONFIG"))
	}
	z := newPlaces(t, kubeconfigs)
	s := newSetup(t, name, z.setup, z.state, z)
	s.text = exampleCluster.ReplaceAllStringFunc(s.text, func(entry string) string {
		c := exampleCluster.FindStringSubmatch(entry)
		return fmt.Sprintf("%s    kubeconfig: %s\n    namespace: %s\n", c[1], kubeconfigs[c[2]], z.places[c[2]].namespace)
	})
	s.write(t, s.text)
	var places []*cluster
	for _, c := range z.places {
		places = append(places, c)
	}
	return s, places
}
