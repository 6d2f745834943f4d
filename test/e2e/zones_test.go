//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/oidc"
)

// zones runs a setup in several places: namespaces of one or more clusters. The keys are the names of the clusters in
// the setup file.
type zones struct {
	setup, state string
	places       map[string]*cluster
	// port is the first node port of the setup.
	port int
	// issuer is the OpenID Connect issuer of users of the second cluster.
	issuer *oidc.Issuer
}

// home is the place of the root shard.
const home = "eu"

// newPlaces creates a runtime for a setup: each place is a namespace of the cluster with a kubeconfig. They are removed
// when the test ends.
func newPlaces(t *testing.T, kubeconfigs map[string]string) *zones {
	t.Helper()
	given(t, "E2E_KCPCTL")
	z := &zones{setup: newName(), state: t.TempDir(), places: map[string]*cluster{}}
	for place, kubeconfig := range kubeconfigs {
		c := &cluster{setup: z.setup, namespace: z.setup + "-" + place, kubeconfig: kubeconfig, home: z.state}
		t.Cleanup(func() { c.remove(t) }) // after kcpctl has removed the setup, if it can
		z.places[place] = c
	}
	return z
}

// names returns the names of the places, home first if it is one of them.
func (z *zones) names() []string {
	if z.places[home] == nil {
		return slices.Sorted(maps.Keys(z.places))
	}
	return append([]string{home}, slices.DeleteFunc(slices.Sorted(maps.Keys(z.places)), func(p string) bool { return p == home })...)
}

func (z *zones) flags(string) []string { return nil }

// merged returns the maps of all places in one, with the name of the place before each key.
func merged[V any](z *zones, of func(*cluster) map[string]V) map[string]V {
	out := map[string]V{}
	for place, c := range z.places {
		for key, value := range of(c) {
			out[place+"/"+key] = value
		}
	}
	return out
}

func (z *zones) written(t *testing.T) map[string]string {
	t.Helper()
	return merged(z, func(c *cluster) map[string]string { return c.written(t) })
}

// running returns the instances by workload: a workload has the same name wherever it is placed.
func (z *zones) running(t *testing.T) map[string]instance {
	t.Helper()
	out := map[string]instance{}
	for _, c := range z.places {
		maps.Copy(out, c.running(t))
	}
	return out
}

func (z *zones) keys(t *testing.T) (authorities, readable map[string][]byte) {
	t.Helper()
	authorities, _ = z.places[home].keys(t)
	readable = merged(z, func(c *cluster) map[string][]byte {
		_, all := c.keys(t)
		return all
	})
	return authorities, readable
}

// applied compares the objects of each place with the place. A namespace belongs to the place that it is.
func (z *zones) applied(t *testing.T, manifests string) {
	t.Helper()
	of := map[string]string{}
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		for place, c := range z.places {
			if strings.Contains(document, "\n  namespace: "+c.namespace+"\n") || strings.Contains(document, "\n  name: "+c.namespace+"\n") {
				of[place] += "\n---\n" + strings.TrimPrefix(document, "---\n")
			}
		}
	}
	for place, c := range z.places {
		require.NotEmpty(t, of[place], place)
		c.applied(t, of[place])
	}
}

func (z *zones) left(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var out []string
	for _, place := range z.names() {
		for _, object := range z.places[place].left(ctx, t) {
			out = append(out, place+": "+object)
		}
	}
	return out
}
