package framework

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/oidc"
)

// Zones runs a setup in several places: namespaces of one or more clusters. The keys are the names of the clusters in
// the setup file.
type Zones struct {
	Setup, State string
	Places       map[string]*Cluster
	// port is the first node port of the setup.
	port int
	// issuer is the OpenID Connect issuer of users of the second cluster.
	issuer *oidc.Issuer
}

// Home is the place of the root shard.
const Home = "eu"

// NewPlaces creates a runtime for a setup: each place is a namespace of the cluster with a kubeconfig. They are removed
// when the test ends.
func NewPlaces(t *testing.T, kubeconfigs map[string]string) *Zones {
	t.Helper()
	Given(t, "E2E_KCPCTL")
	z := &Zones{Setup: NewName(), State: t.TempDir(), Places: map[string]*Cluster{}}
	for place, kubeconfig := range kubeconfigs {
		c := &Cluster{Setup: z.Setup, Namespace: z.Setup + "-" + place, Kubeconfig: kubeconfig, Home: z.State}
		t.Cleanup(func() { c.remove(t) }) // after kcpctl has removed the setup, if it can
		z.Places[place] = c
	}
	return z
}

// names returns the names of the places, home first if it is one of them.
func (z *Zones) names() []string {
	if z.Places[Home] == nil {
		return slices.Sorted(maps.Keys(z.Places))
	}
	return append([]string{Home}, slices.DeleteFunc(slices.Sorted(maps.Keys(z.Places)), func(p string) bool { return p == Home })...)
}

func (z *Zones) Flags(string) []string { return nil }

// merged returns the maps of all places in one, with the name of the place before each key.
func merged[V any](z *Zones, of func(*Cluster) map[string]V) map[string]V {
	out := map[string]V{}
	for place, c := range z.Places {
		for key, value := range of(c) {
			out[place+"/"+key] = value
		}
	}
	return out
}

func (z *Zones) Written(t *testing.T) map[string]string {
	t.Helper()
	return merged(z, func(c *Cluster) map[string]string { return c.Written(t) })
}

// Running returns the instances by workload: a workload has the same name wherever it is placed.
func (z *Zones) Running(t *testing.T) map[string]instance {
	t.Helper()
	out := map[string]instance{}
	for _, c := range z.Places {
		maps.Copy(out, c.Running(t))
	}
	return out
}

func (z *Zones) Keys(t *testing.T) (authorities, readable map[string][]byte) {
	t.Helper()
	authorities, _ = z.Places[Home].Keys(t)
	readable = merged(z, func(c *Cluster) map[string][]byte {
		_, all := c.Keys(t)
		return all
	})
	return authorities, readable
}

// applied compares the objects of each place with the place. A namespace belongs to the place that it is.
func (z *Zones) applied(t *testing.T, manifests string) {
	t.Helper()
	of := map[string]string{}
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		for place, c := range z.Places {
			if strings.Contains(document, "\n  namespace: "+c.Namespace+"\n") || strings.Contains(document, "\n  name: "+c.Namespace+"\n") {
				of[place] += "\n---\n" + strings.TrimPrefix(document, "---\n")
			}
		}
	}
	for place, c := range z.Places {
		require.NotEmpty(t, of[place], place)
		c.applied(t, of[place])
	}
}

func (z *Zones) Left(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var out []string
	for _, place := range z.names() {
		for _, object := range z.Places[place].Left(ctx, t) {
			out = append(out, place+": "+object)
		}
	}
	return out
}
