package model_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// story is a fixed sequence of commands, where chance would rarely find it.
type story struct {
	*world
	t        *testing.T
	ann, bob *operator
}

// tell runs a story on the clusters eu and us.
func tell(t *testing.T, do func(*story)) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("eu", "us")
		w.log = t.Logf
		do(&story{world: w, t: t, ann: newOperator(w, "ann", dir), bob: newOperator(w, "bob", dir)})
	})
}

// setup returns a setup with root shard and front-proxy on a cluster, and the shard alpha on another one, with its PKI
// in the cluster.
func (s *story) setup(home, other string) *v1alpha1.Setup {
	out := base(slices.Compact([]string{home, other}))
	out.Spec.PKI.Store = v1alpha1.PKIStoreCluster
	if other != home {
		out.Spec.Shards = []v1alpha1.Shard{shardOf("alpha", other, etcdOf("embedded"))}
	}
	return out
}

// begin saves a file for both users, and applies it.
func (s *story) begin(file *v1alpha1.Setup) {
	s.t.Helper()
	s.ann.save(file)
	s.bob.save(file)
	s.succeeds(s.ann, "up")
}

// up returns the arguments of up.
func up(flags ...string) []string { return append([]string{"up"}, flags...) }

// run runs a command, and returns its exit code and what it prints, in one line. It may break no rule.
func (s *story) run(who *operator, args ...string) (code int, output string) {
	s.t.Helper()
	if args[0] == "up" || args[0] == "certs" && args[1] != "import" && args[1] != "export" {
		args = append(slices.Clone(args), bring...)
	}
	c, before := who.command(args...), who.text()
	code = c.run()
	s.logf("%s: exit code %d: %s", c, code, c.output.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actor = c
	if f, err := setup.Parse("kcp.yaml", before); err == nil && code == 0 && c.is("up") && !c.has("--only") {
		s.complete(c, topology.Build(f.Setup))
	}
	require.Empty(s.t, s.problems)
	return code, strings.Join(strings.Fields(c.output.String()), " ")
}

// succeeds runs a command that must succeed.
func (s *story) succeeds(who *operator, args ...string) string {
	s.t.Helper()
	code, output := s.run(who, args...)
	require.Zero(s.t, code, output)
	return output
}

// refused runs a command that must fail without a write, with a message.
func (s *story) refused(who *operator, message string, args ...string) string {
	s.t.Helper()
	before := s.changes
	code, output := s.run(who, args...)
	require.NotZero(s.t, code, output)
	s.says(output, message)
	require.Equal(s.t, before, s.changes, "nothing is written: %s", output)
	return output
}

// says requires that an output contains texts.
func (s *story) says(output string, want ...string) {
	s.t.Helper()
	for _, text := range want {
		require.Contains(s.t, output, text)
	}
}

// secret returns a Secret on a cluster.
func (s *story) secret(cluster, name string) *unstructured.Unstructured {
	return s.object(place{cluster, "kcp"}, secrets, name)
}

// entry returns an entry of a Secret on a cluster.
func (s *story) entry(cluster, name, key string) string {
	o := s.secret(cluster, name)
	require.NotNil(s.t, o, name)
	return s.entryOf(o, key)
}

// edit changes a JSON entry of a Secret on a cluster.
func (s *story) edit(cluster, name, key string, change func(map[string]any)) {
	edited(s.world, s.secret(cluster, name), key, change)
}

// put writes an entry of a Secret on a cluster.
func (s *story) put(cluster, name, key, value string) {
	o := s.secret(cluster, name)
	require.NoError(s.t, unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", key))
}

// installed returns the ID of the installation whose root shard is on a cluster.
func (s *story) installed(cluster string) string {
	var rec struct{ Installation string }
	require.NoError(s.t, json.Unmarshal([]byte(s.entry(cluster, "demo-inventory", "installation.json")), &rec))
	return rec.Installation
}
