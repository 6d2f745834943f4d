package day2

import (
	"cmp"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// exampleCluster matches an entry of spec.clusters in an example.
var exampleCluster = regexp.MustCompile(`(?m)^(  - name: (\S+)( .*)?\n)(?:    context: \S+\n)?    namespace: \S+\n`)

// newExample creates a setup from an example. If it has several clusters, they become namespaces of the one under test,
// or of those with the given kubeconfigs.
func newExample(t *testing.T, name string, elsewhere map[string]string) (*framework.Setup, []*framework.Cluster) {
	t.Helper()
	text, err := examples.Read(name)
	require.NoError(t, err)
	clusters := exampleCluster.FindAllStringSubmatch(string(text), -1)
	if len(clusters) == 0 {
		s := framework.NewCluster(t, name)
		return s, []*framework.Cluster{s.Runtime.(*framework.Cluster)}
	}
	kubeconfigs := map[string]string{}
	for _, c := range clusters {
		kubeconfigs[c[2]] = cmp.Or(elsewhere[c[2]], framework.Given(t, "E2E_KUBECONFIG"))
	}
	z := framework.NewPlaces(t, kubeconfigs)
	s := framework.NewSetup(t, name, z.Setup, z.State, z)
	s.Text = exampleCluster.ReplaceAllStringFunc(s.Text, func(entry string) string {
		c := exampleCluster.FindStringSubmatch(entry)
		return fmt.Sprintf("%s    kubeconfig: %s\n    namespace: %s\n", c[1], kubeconfigs[c[2]], z.Places[c[2]].Namespace)
	})
	s.Write(t, s.Text)
	var places []*framework.Cluster
	for _, c := range z.Places {
		places = append(places, c)
	}
	return s, places
}
