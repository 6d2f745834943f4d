//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
)

// TestClusterExamples plans every example on a real API server, which validates it without a write.
func TestClusterExamples(t *testing.T) {
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			s, places := newExample(t, name, nil)
			for _, c := range places {
				c.makeNamespace(t)
				for _, name := range []string{"etcd-client", "api-tls"} { // of external-etcd.yaml and vespucci.yaml
					credentials := object("v1", "Secret", name)
					credentials["stringData"] = map[string]string{"ca.crt": "ca", "tls.crt": "certificate", "tls.key": "key"}
					c.apply(t, "e2e", credentials)
				}
			}
			before := s.written(t)

			create := places[0].kubectl("apply", "--server-side", "--field-manager=kcpctl", "--dry-run=server", "--validate=strict", "--filename", "-")
			create.stdin = objectsOfClusters(s.kcpctl(t, "render", "--pki-dir", t.TempDir()).ok(t).stdout)
			r := create.run(t.Context(), t)
			require.Zero(t, r.code, r.stderr)
			require.Regexp(t, `(?m)^[1-9][0-9]* create`, s.kcpctl(t, "up", "--dry-run=server", "--ignore-checks=KCP018").ok(t).stdout)
			require.Equal(t, before, s.written(t), "a dry run writes nothing")
		})
	}
}

// objectsOfClusters returns the manifests without those that kubectl cannot try on a cluster: objects in workspaces of
// kcp, and those of a CRD that is among the manifests.
func objectsOfClusters(manifests string) string {
	const separator = "\n---\n"
	return strings.Join(slices.DeleteFunc(strings.Split(manifests, separator), func(doc string) bool {
		comment, _, _ := strings.Cut(strings.TrimPrefix(doc, "---\n"), "\n")
		return strings.Contains(comment, ", in workspace ") || strings.Contains(doc, "\nkind: PublishedResource\n")
	}), separator)
}

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
