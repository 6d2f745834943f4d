package deploy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	places = `spec:
  clusters: [{name: eu, namespace: kcp}, {name: us, context: us, namespace: kcp}]
  cacheServer: {url: "https://cache.example.com:6443", etcd: {managed: {}}}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: eu, url: "https://alpha.example.com:6443"}, {name: beta, cluster: us, url: "https://beta.example.com:6443"}]
  frontProxies: [{name: main, cluster: eu}]
  external: {hostname: kcp.example.com}
`
	embedded = "spec: {shards: [{name: alpha, etcd: {embedded: {}}}]}\n"
	external = "spec: {etcd: {external: {endpoints: [\"http://etcd:2379\"]}}, shards: [{name: alpha}]}\n"
	managed  = "spec: {shards: [{name: alpha}]}\n"
)

// changed is a setup in which some text is replaced.
func changed(spec string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(spec) }

// losses are edits of a setup file that would take data away from those who use it.
var losses = map[string]struct {
	from, to string
	want     []string // the components that are refused
	// never says that no flag allows it.
	never bool
}{
	"another etcd":         {from: managed, to: external, want: []string{"root-shard", "shard/alpha"}},
	"from embedded":        {from: embedded, to: managed, want: []string{"shard/alpha"}},
	"another prefix":       {from: external, to: changed(external, "{name: alpha}", "{name: alpha, etcd: {external: {prefix: /other}}}"), want: []string{"shard/alpha"}},
	"other endpoints":      {from: external, to: changed(external, "etcd:2379", "other:2379"), want: []string{"root-shard", "shard/alpha"}},
	"more members":         {from: managed, to: changed(managed, "spec: {", "spec: {etcd: {managed: {replicas: 3}}, "), want: []string{"etcd/alpha", "etcd/root"}, never: true},
	"a volume that dies":   {from: embedded, to: changed(embedded, "embedded: {}", "embedded: {ephemeral: true}"), want: []string{"shard/alpha"}},
	"an overlaid volume":   {from: embedded, to: changed(embedded, "embedded: {}}}", "embedded: {}}, podTemplate: {spec: {volumes: [{name: data, persistentVolumeClaim: null, emptyDir: {}}]}}}"), want: []string{"shard/alpha"}},
	"another cluster":      {from: places, to: changed(places, "alpha, cluster: eu", "alpha, cluster: us"), want: []string{"etcd/alpha", "shard/alpha"}},
	"another namespace":    {from: places, to: changed(places, "context: us, namespace: kcp", "context: us, namespace: kcp2"), want: []string{"etcd/beta", "shard/beta"}},
	"a renamed shard":      {from: managed, to: changed(managed, "alpha", "beta"), want: []string{"shard/alpha"}, never: true},
	"a dropped shard":      {from: managed, to: "", want: []string{"shard/alpha"}, never: true},
	"a dropped cache":      {from: places, to: changed(places, "  cacheServer: {url: \"https://cache.example.com:6443\", etcd: {managed: {}}}\n", ""), want: []string{"cache-server", "etcd/cache"}},
	"another root cluster": {from: places, to: changed(places, "rootShard: {cluster: eu", "rootShard: {cluster: us"), want: []string{"cache-server", "etcd/cache", "etcd/root", "root-shard"}, never: true},
}

// edited is a world in which a setup was applied, and the next run is for another.
func edited(t *testing.T, w *world, to string) *world {
	w.MustRun(t)
	next := newWorld(t, topologytest.Build(t, runtest.Minimal+to), w.Runtime)
	next.Runtime.Use(next.Topology)
	return next
}

func requireRefused(t *testing.T, err error, want []string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, clierr.Failed, clierr.Code(err))
	require.NotEmpty(t, clierr.Hint(err))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, len(want), err)
	for i, id := range want {
		require.True(t, strings.HasPrefix(lines[i], id+" "), lines[i])
	}
}

// What an edit would lose is refused while the setup runs and after down, when nothing is left but the record and the
// volumes.
func TestChangesThatWouldLoseData(t *testing.T) {
	for name, tc := range losses {
		for when, down := range map[string]bool{"running": false, "after down": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				inWorld(t, runtest.Minimal+tc.from, func(t *testing.T, w *world) {
					w.MustRun(t)
					if down {
						require.NoError(t, w.down(t, false))
					}
					next := newWorld(t, topologytest.Build(t, runtest.Minimal+tc.to), w.Runtime)
					next.Runtime.Use(next.Topology)
					_, err := next.Run(t)
					requireRefused(t, err, tc.want)
					require.Empty(t, next.Runtime.Calls())
				})
			})
		}
	}
}

func TestChangesThatWouldLoseDataOnPurpose(t *testing.T) {
	for name, tc := range losses {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+tc.from, func(t *testing.T, w *world) {
				w = edited(t, w, tc.to)
				for _, id := range tc.want {
					w.Up.Options.AllowDataChange = append(w.Up.Options.AllowDataChange, topology.ID(id))
				}
				_, err := w.Run(t)
				require.Equal(t, tc.never, err != nil, err)
				if err == nil {
					w.Up.Options.AllowDataChange = nil
					require.True(t, w.MustRun(t).Plan.Empty(), "it is the installation's from now on")
				}
			})
		})
	}
}

func TestChangesThatLoseNothing(t *testing.T) {
	for name, tc := range map[string]struct{ from, to string }{
		"other flags":        {managed, changed(managed, "spec: {", "spec: {defaults: {logLevel: 4}, ")},
		"a shard more":       {managed, changed(managed, "{name: alpha}", "{name: alpha}, {name: beta}")},
		"a front-proxy less": {changed(managed, "spec: {", "spec: {frontProxies: [{name: main}, {name: second}], "), managed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+tc.from, func(t *testing.T, w *world) { edited(t, w, tc.to).MustRun(t) })
		})
	}
}

// An installation of an earlier kcpctl has no record: its objects say what it has.
func TestAnInstallationWithoutARecord(t *testing.T) {
	for name, tc := range map[string]struct {
		to    string
		other bool
		want  []string
	}{
		"nothing changes":   {to: managed},
		"another etcd":      {to: external, want: []string{"root-shard", "shard/alpha"}},
		"a dropped shard":   {to: "", want: []string{"shard/alpha"}},
		"other authorities": {to: managed, other: true, want: []string{"memory", " ", " ", " ", " ", " "}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
				w = edited(t, w, tc.to)
				w.Runtime.ForgetRecord()
				if tc.other {
					w.Runtime.OtherRun(w.completed(t, &pki.State{}))
				}
				_, err := w.Run(t)
				if len(tc.want) == 0 {
					require.NoError(t, err)
					known, err := w.Runtime.Record(t.Context())
					require.NoError(t, err)
					require.Len(t, known.Data, 4)
					require.True(t, w.MustRun(t).Plan.Empty())
					return
				}
				requireRefused(t, err, tc.want)
			})
		})
	}
}

// The record and the PKI are lost, and nothing runs: another installation is not made unless that is meant.
func TestALostInstallation(t *testing.T) {
	lost := func(t *testing.T, w *world, purge bool) string {
		t.Helper()
		w.MustRun(t)
		id := w.Runtime.PKI().Installation.ID
		down := deploy.Down{Runtime: w.Runtime, Topology: w.Topology, Observe: w.Observe(t), Now: time.Now, Purge: purge}
		require.NoError(t, down.Run(t.Context()))
		if !purge {
			w.Runtime.ForgetRecord()
			w.Runtime.OtherRun(&pki.State{})
		}
		return id
	}
	inWorld(t, runtest.Minimal+external, func(t *testing.T, w *world) {
		id := lost(t, w, false)
		_, err := w.Run(t)
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.ErrorContains(t, err, "installation "+id+` of kcp "demo" was in memory, and its record does not exist any more`)
		require.Contains(t, clierr.Hint(err), "kcpctl up --allow lost-record="+id)
		require.Empty(t, w.Runtime.Calls())

		named := func(id string) {
			w.File(t, strings.Replace(runtest.Minimal, "name: demo", "name: demo, installation: "+id, 1)+external)
		}
		w.Up.Options.NewInstallation = true
		named(id)
		_, err = w.Run(t)
		require.ErrorContains(t, err, "its record does not exist any more", "it did exist")
		named("demo-x7k2m9qd")
		w.MustRun(t)
	})
	inWorld(t, runtest.Minimal+external, func(t *testing.T, w *world) {
		id := lost(t, w, true)
		w.MustRun(t)
		require.NotEqual(t, id, w.Runtime.PKI().Installation.ID)
	})
}

// A mistyped directory, a fresh clone without the directory, a copy from before a rotation: nothing is replaced.
func TestOtherAuthoritiesAreRefused(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, w *world) *pki.State{
		"an empty store": func(*testing.T, *world) *pki.State { return &pki.State{} },
		"another kcp's":  func(t *testing.T, w *world) *pki.State { return w.completed(t, &pki.State{}) },
		"a copy too old": func(t *testing.T, w *world) *pki.State { return rotatedAway(t, w) },
		"without one of 4": func(t *testing.T, w *world) *pki.State {
			s := *w.Runtime.PKI()
			s.CAs = without(s.CAs, topology.ClientCA)
			return &s
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
				w.MustRun(t)
				state := other(t, w)
				ours := w.Runtime.PKI()
				w.Runtime.OtherRun(state)
				for what, command := range map[string]func() error{
					"up": func() error { _, err := w.Run(t); return err },
					"remove-shard": func() error {
						return (&shards.RemoveShards{Topology: w.Topology, Runtime: w.Runtime, Names: []string{"alpha"}, Observe: w.Observe(t), Now: time.Now}).Run(t.Context())
					},
					"import of nothing": func() error {
						return deploy.ChangeStore(t.Context(), w.Topology, w.Runtime, w.Runtime.Store(), func(s *pki.State) (*pki.State, error) { return s, nil })
					},
				} {
					w.Runtime.Forget()
					err := command()
					refusal := "does not hold the PKI of installation " + ours.Installation.ID
					if len(state.CAs) == 0 {
						refusal = "the PKI store (memory) is empty; installation " + ours.Installation.ID + " uses other authorities"
					}
					require.ErrorContains(t, err, refusal, what)
					require.NotContains(t, w.Runtime.Calls(), "Save", what)
					require.NotContains(t, w.Runtime.Calls(), "Begin", what)
				}
				w.Up.Options.ReplaceAuthorities = name != "without one of 4"
				_, err := w.Run(t)
				require.Equal(t, name == "without one of 4", err != nil, err)
			})
		})
	}
}

// rotatedAway rotates the server CA to the end, and returns the PKI from before.
func rotatedAway(t *testing.T, w *world) *pki.State {
	before := w.Runtime.PKI()
	rotate, _, _ := w.rotation(pki.RotationOf(topology.ServerCA))
	_, err := rotate.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, rotate.Finish(t.Context()))
	old := *before
	return &old
}

func without(all map[topology.CA]pki.Authority, drop topology.CA) map[topology.CA]pki.Authority {
	out := map[topology.CA]pki.Authority{}
	for ca, a := range all {
		if ca != drop {
			out[ca] = a
		}
	}
	return out
}

// What runs decides which release may follow, not what the file said before.
func TestReleases(t *testing.T) {
	of := func(version string) string { return "spec: {version: " + version + ", shards: [{name: alpha}]}\n" }
	for name, tc := range map[string]struct {
		from, runs, to string
		want           []string
	}{
		"a patch":            {from: "v0.32.2", to: "v0.32.3"},
		"the next minor":     {from: "v0.31.6", to: "v0.32.3"},
		"one is skipped":     {from: "v0.30.0", to: "v0.32.3", want: []string{"root-shard", "shard/alpha", "front-proxy/main"}},
		"back":               {from: "v0.32.3", to: "v0.31.6", want: []string{"root-shard", "shard/alpha", "front-proxy/main"}},
		"back a patch":       {from: "v0.32.3", to: "v0.32.2", want: []string{"root-shard", "shard/alpha", "front-proxy/main"}},
		"a failed upgrade":   {from: "v0.31.6", runs: "v0.30.0", to: "v0.32.3", want: []string{"shard/alpha"}},
		"and its completion": {from: "v0.31.6", runs: "v0.30.0", to: "v0.31.6"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+of(tc.from), func(t *testing.T, w *world) {
				w = edited(t, w, of(tc.to))
				if tc.runs != "" {
					w.Runtime.Edit("Deployment/kcp/demo-shard-alpha", func(o *unstructured.Unstructured) { setImage(t, o, "ghcr.io/kcp-dev/kcp:"+tc.runs) })
				}
				_, err := w.Run(t)
				if len(tc.want) == 0 {
					require.NoError(t, err)
					return
				}
				requireRefused(t, err, tc.want)
				require.Empty(t, w.Runtime.Calls())
				require.Contains(t, clierr.Hint(err), "--allow release-change")
				w.Up.Options.AllowReleaseChange = true
				w.MustRun(t)
			})
		})
	}
}

// An embedded etcd does not start with data of a newer minor release. Only who knows that there is none may go back.
func TestEmbeddedEtcdsDoNotGoBack(t *testing.T) {
	of := func(version, etcd string) string {
		return "spec: {version: " + version + ", etcd: {managed: {image: \"e:v3.6.16\"}}, shards: [{name: alpha, etcd: {" + etcd + "}}]}\n"
	}
	for name, tc := range map[string]struct {
		from, to, etcd string
		refused        bool
	}{
		"another minor release": {"v0.30.0", "v0.29.3", "embedded: {}", true},
		"several":               {"v0.32.3", "v0.28.0", "embedded: {}", true},
		"the same etcd":         {"v0.31.6", "v0.30.3", "embedded: {}", false},
		"forward":               {"v0.29.3", "v0.30.3", "embedded: {}", false},
		"it keeps no data":      {"v0.30.0", "v0.29.3", "embedded: {ephemeral: true}", false},
		"an etcd of its own":    {"v0.30.0", "v0.29.3", "managed: {}", false},
	} {
		for when, down := range map[string]bool{"running": false, "after down": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				inWorld(t, runtest.Minimal+of(tc.from, tc.etcd), func(t *testing.T, w *world) {
					w = edited(t, w, of(tc.to, tc.etcd))
					if down {
						require.NoError(t, w.down(t, false))
					}
					w.Up.Options.AllowReleaseChange = true
					if !tc.refused {
						w.MustRun(t)
						return
					}
					_, err := w.Run(t)
					requireRefused(t, err, []string{"shard/alpha"})
					require.Contains(t, clierr.Hint(err), "restore a backup from before the upgrade")
					require.Contains(t, clierr.Hint(err), "if "+tc.from+" has never started here: ")
					require.Empty(t, w.Runtime.Calls())
					w.Up.Options.AllowDataChange = []topology.ID{"shard/alpha"}
					w.MustRun(t)
				})
			})
		}
	}
}

// A digest says which image runs, and not which release: the same image cannot be another release.
func TestTheSameImageIsTheSameRelease(t *testing.T) {
	const one, other = "sha256:0123456789012345678901234567890123456789012345678901234567890123",
		"sha256:3210321032103210321032103210321032103210321032103210321032103210"
	of := func(version, image string) string {
		return "spec: {version: " + version + ", image: {" + image + "}, shards: [{name: alpha}]}\n"
	}
	for name, tc := range map[string]struct {
		from, to string
		refused  bool
	}{
		"the next release":            {of("v0.31.6", "digest: "+one), of("v0.32.3", "digest: "+one), true},
		"one with the same flags":     {of("v0.32.0", "digest: "+one), of("v0.32.1", "digest: "+one), true},
		"a tag beside it":             {of("v0.31.6", "digest: "+one), of("v0.31.6", "tag: v0.32.3, digest: "+one), true},
		"another image":               {of("v0.31.6", "digest: "+one), of("v0.32.3", "digest: "+other), false},
		"the tag says its release":    {of("v0.31.6", "digest: "+one), of("v0.32.3", "tag: v0.31.6, digest: "+one), false},
		"the same release, otherwise": {of("v0.31.6", "digest: "+one), of("v0.31.6", "digest: "+one+", pullPolicy: Always"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+tc.from, func(t *testing.T, w *world) {
				w = edited(t, w, tc.to)
				_, err := w.Run(t)
				if !tc.refused {
					require.NoError(t, err)
					return
				}
				requireRefused(t, err, []string{"root-shard", "shard/alpha"})
				require.Contains(t, clierr.Hint(err), "set image.digest to that of v0.32.")
				require.Empty(t, w.Runtime.Calls())
				w.Up.Options.AllowReleaseChange = true
				w.MustRun(t)
			})
		})
	}
}

// The tag of the user's own server is not a release of kcp: it may become any other one, and the server one of kcp.
func TestReleasesOfTheUsersServers(t *testing.T) {
	own := func(tag string) string {
		return "spec: {virtualWorkspaces: [{name: own, command: [/own], image: {repository: example.com/own, tag: " + tag + "}}]}\n"
	}
	inWorld(t, runtest.Minimal+own("v1.4.0"), func(t *testing.T, w *world) {
		w = edited(t, w, own("v0.9.0"))
		w.MustRun(t)
		edited(t, w, "spec: {virtualWorkspaces: [{name: own}]}\n").MustRun(t)
	})
}

// A server without a command may be kcp's: nothing shows that its program is the user's.
func TestReleasesOfAServerWithoutACommand(t *testing.T) {
	of := func(version string) string {
		return "spec: {version: " + version + ", virtualWorkspaces: [{name: vw}]}\n"
	}
	inWorld(t, runtest.Minimal+of("v0.32.3"), func(t *testing.T, w *world) {
		w = edited(t, w, of("v0.31.6"))
		w.Runtime.Edit("Deployment/kcp/demo-vw-vw", func(o *unstructured.Unstructured) {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			require.NoError(t, err)
			delete(containers[0].(map[string]any), "command")
			require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		})
		_, err := w.Run(t)
		requireRefused(t, err, []string{"root-shard", "front-proxy/main", "virtual-workspaces/vw"})
	})
}

func setImage(t *testing.T, o *unstructured.Unstructured, image string) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	containers[0].(map[string]any)["image"] = image
	require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
}

// A run that loses the lock writes nothing more, and reports the loss.
func TestALostLockEndsTheRun(t *testing.T) {
	lost := clierr.New(clierr.Conflict, "run the command again", "lost the lock")
	for _, call := range []string{"Save", "Begin", "Apply etcd/alpha", "Finish"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
				w.Runtime.On(call, func() error { w.Runtime.Lose(lost); return context.Canceled })
				_, err := w.Run(t)
				require.True(t, errors.Is(err, lost), err)
				require.Equal(t, "Unlock", w.Runtime.Calls()[len(w.Runtime.Calls())-1])
			})
		})
	}
}

// What happens to the run after the lock was lost does not make it write how it ended: another run may have begun.
func TestARunWithoutTheLockWritesNoEnd(t *testing.T) {
	lost := clierr.New(clierr.Conflict, "run the command again", "lost the lock")
	for name, lose := range map[string]func(w *world, interrupt func()){
		"lost":                  func(w *world, _ func()) { w.Runtime.Lose(lost) },
		"lost, and interrupted": func(w *world, interrupt func()) { w.Runtime.Lose(lost); interrupt() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				w.Runtime.On("Apply etcd/alpha", func() error { lose(w, interrupt); return context.Canceled })
				_, err := w.Up.Run(ctx)
				require.ErrorIs(t, err, lost)
				_, unfinished, err := w.Runtime.Runs(t.Context())
				require.NoError(t, err)
				require.NotNil(t, unfinished)
				require.Zero(t, unfinished.Ended)
			})
		})
	}
}

// A replacement of the authorities was interrupted: a run for one component would leave it alone among the others.
func TestARestrictedRunDoesNotContinueAReplacement(t *testing.T) {
	inWorld(t, runtest.Minimal+managed, func(t *testing.T, w *world) {
		w.MustRun(t)
		half := *w.completed(t, &pki.State{})
		half.Leaves = w.Runtime.PKI().Leaves // nothing was issued yet
		half.Installation = w.Runtime.PKI().Installation
		w.Runtime.OtherRun(&half)
		w.Runtime.ForgetRecord() // as if it had been written
		w.Up.Options.Only = []topology.ID{"front-proxy/main"}
		_, err := w.Run(t)
		require.ErrorContains(t, err, "certificate authorities are being replaced: demo-")
		require.Equal(t, clierr.Failed, clierr.Code(err))
		require.Empty(t, w.Runtime.Calls())
	})
}
