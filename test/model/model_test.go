//go:debug randseednop=0

// Package model_test runs random commands of kcpctl against clusters in memory: two operators on two machines edit the
// setup file, run concurrently, and are killed at any moment. Checks from outside require what kcpctl promises, after
// each step and at each write.
package model_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/test/random"
)

var (
	wanted = flag.Int("model.steps", 100, "number of steps")
	only   = flag.String("model.steps-only", "", "names of steps, separated by commas: the others are not taken")
	told   = flag.Bool("model.log", false, "print the log of a step immediately")
)

// memory is how many bytes a long run uses before it collects garbage more often.
const memory = 3 << 30

// dirOfModel is the directory of this package in the repository.
const dirOfModel = "test/model"

func TestModel(t *testing.T) { runModel(t, steps) }

// TestEncryptedModel also changes the encryption of objects in etcd, and rotates its key.
func TestEncryptedModel(t *testing.T) { runModel(t, slices.Concat(steps, encrypting)) }

// runModel takes random steps.
func runModel(t *testing.T, steps []step) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	// Goroutines that are ready at the same virtual time run in almost the same order each time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // few objects survive a step
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memory))
	taken, began := &tally{counts: map[string]int{}}, time.Now()
	watch(t, taken)
	dir := filepath.Join(t.TempDir(), "model")
	checks := &random.Checks{Dir: dirOfModel, Wanted: *wanted, Steps: func() int { return taken.steps }}
	checks.Check = func(rt *rapid.T, seed uint64) {
		taken.seed.Store(seed)
		random.Seed(t, seed)
		bubble(t, func() { play(rt, dir, taken, steps) })
	}
	checks.Run(t)
	t.Logf("%d steps in %s", taken.steps, time.Since(began).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(taken.counts)) {
		t.Logf("%8d %s", taken.counts[name], name)
	}
}

// tally counts the steps of all checks. failed is the number of the first failed step.
type tally struct {
	steps, failed int
	counts        map[string]int
	// seed is the one of the check, running is the command that runs, and commands is how many have begun.
	seed     atomic.Uint64
	running  atomic.Pointer[command]
	commands atomic.Int64
}

// bubble runs a check in a synctest bubble and passes its panic on: rapid compares failures by the origin of the panic,
// and a check that has run out of data panics too.
func bubble(t *testing.T, check func()) {
	var ended any
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if ended = recover(); ended == nil {
					return
				}
				if kind := fmt.Sprintf("%T", ended); !strings.HasPrefix(kind, "rapid.") {
					fmt.Printf("panic: %v\n%s", ended, debug.Stack())
				}
			}()
			check()
		}()
		<-done
	})
	if ended != nil {
		panic(ended)
	}
}

// game is a sequence of steps.
type game struct {
	*world
	t         *rapid.T
	operators []*operator
	dir       string
	// clean is the operator of the last successful up, its setup file, and the number of writes so far: the same up
	// again must write nothing.
	clean struct {
		who     *operator
		text    string
		changes int
	}
	// applied is the last applied file.
	applied     []byte
	spaceNumber int
	// rotated is the authority of the last rotation.
	rotated string
	// backups are copies of the Secrets of clusters.
	backups map[string]backup
	*tally
}

type step struct {
	weight int
	name   string
	do     func(*game, *operator)
}

var steps = []step{
	{10, "up", (*game).up},
	{6, "revert and up", (*game).revertAndUp},
	{10, "edit", (*game).edit},
	{5, "create workspace", (*game).createWorkspace},
	{2, "delete workspace", (*game).deleteWorkspace},
	{3, "add-shard", (*game).addShard},
	{4, "remove-shard", (*game).removeShard},
	{3, "down", (*game).down},
	{2, "renew", (*game).renew},
	{4, "rotate", (*game).rotate},
	{2, "upgrade", (*game).upgrade},
	{3, "fetch the file", (*game).fetch},
	{2, "PKI directories", (*game).copyDirectories},
	{2, "Secrets", (*game).secretBackups},
	{1, "lose pod", (*game).losePod},
	{1, "volumes", (*game).volumesSlow},
	{1, "rebuild cluster", (*game).rebuildCluster},
	{1, "lose namespace", (*game).loseNamespace},
	{1, "lose claim", (*game).loseClaim},
	{1, "wait", (*game).wait},
	{1, "wrong file", (*game).wrongFile},
	{1, "home away", (*game).homeAway},
	{1, "record away", (*game).recordAway},
	{1, "later format", (*game).laterFormat},
	{1, "later fields", (*game).laterFields},
	{1, "later etcd", (*game).laterEtcd},
	{1, "foreign authority", (*game).foreignAuthority},
	{1, "predecessor", (*game).predecessor},
}

func play(t *rapid.T, dir string, taken *tally, steps []step) {
	n := rapid.IntRange(2, 3).Draw(t, "clusters")
	w := newWorld(clusterNames[:n]...)
	w.log = t.Logf
	if *told {
		w.log = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	g := &game{world: w, t: t, dir: dir, tally: taken, backups: map[string]backup{}}
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	for _, name := range []string{"ann", "bob"} {
		g.operators = append(g.operators, newOperator(w, name, dir))
	}
	g.begin()
	var names []string
	for _, s := range steps {
		if *only == "" || slices.Contains(strings.Split(*only, ","), s.name) {
			names = append(names, slices.Repeat([]string{s.name}, s.weight)...)
		}
	}
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		g.t = t
		name := rapid.SampledFrom(names).Draw(t, "step")
		who := rapid.SampledFrom(g.operators).Draw(t, "operator")
		taken.steps++
		s := steps[slices.IndexFunc(steps, func(s step) bool { return s.name == name })]
		s.do(g, who)
		g.judge()
	}})
}

// judge ends the check if there are violations.
func (g *game) judge() {
	g.lasting()
	if len(g.problems) > 0 {
		if g.failed == 0 {
			g.failed = g.steps
			fmt.Printf("the first failure is at step %d: %s\n", g.steps, g.problems[0])
		}
		for _, p := range g.problems {
			g.logf("VIOLATION: %s", p)
		}
		g.t.Fatalf("%s", g.problems[0])
	}
}

// begin writes the first setup file and runs up.
func (g *game) begin() {
	s := base(names(g.clusters))
	s.Spec.PKI.Store = rapid.SampledFrom([]v1alpha1.PKIStore{v1alpha1.PKIStoreCluster, v1alpha1.PKIStoreDirectory}).Draw(g.t, "store")
	if kind := rapid.SampledFrom([]string{"", "managed", "embedded"}).Draw(g.t, "cache server"); kind != "" {
		s.Spec.CacheServer = &v1alpha1.CacheServer{Etcd: etcdOf(kind), URL: urlOf(3)}
	}
	s.Spec.RootShard.Etcd = etcdOf(rapid.SampledFrom(etcdKinds[:3]).Draw(g.t, "etcd of root"))
	for i := range rapid.IntRange(0, 2).Draw(g.t, "shards") {
		kind := rapid.SampledFrom(etcdKinds[:5]).Draw(g.t, "etcd")
		s.Spec.Shards = append(s.Spec.Shards, shardOf(shardNames[i], g.anyCluster(), etcdOf(kind)))
	}
	if rapid.Bool().Draw(g.t, "two front-proxies") {
		p := v1alpha1.FrontProxy{Name: "west"}
		p.Cluster = g.anyCluster()
		s.Spec.FrontProxies = append(s.Spec.FrontProxies, p)
	}
	for _, o := range g.operators {
		o.save(s)
	}
	g.run(g.operators[0], mishap{}, "up")
	copyDirectory(filepath.Join(g.operators[0].dir, "pki"), filepath.Join(g.operators[1].dir, "pki"))
	g.judge()
}

func names(all []*cluster) []string {
	var out []string
	for _, c := range all {
		out = append(out, c.name)
	}
	return out
}

func (g *game) anyCluster() string {
	return rapid.SampledFrom(names(g.clusters)).Draw(g.t, "cluster")
}

func (g *game) draw(what string, of ...string) string { return rapid.SampledFrom(of).Draw(g.t, what) }

// chance returns true once in so many times. Shrinking tends to false.
func (g *game) chance(what string, in int) bool {
	return rapid.IntRange(0, in-1).Draw(g.t, what) == in-1
}

// run runs a command and checks its result.
func (g *game) run(who *operator, m mishap, args ...string) int {
	s := who.command(args...)
	s.mishap = m
	before := who.text()
	g.logf("%s", s)
	g.running.Store(s)
	g.commands.Add(1)
	code := s.run()
	g.logf("    exit code %d, %d writes: %s", code, s.changes, s.printed())
	g.counts[fmt.Sprintf("%s: exit code %d", args[0], code)]++
	g.mu.Lock()
	defer g.mu.Unlock()
	g.actor = s
	if !s.is("up") || code != 0 {
		g.clean.who = nil // it may have changed a PKI directory
	}
	unlimited := s.is("up") && len(s.values("--only")) == 0
	if code == 0 && unlimited {
		if f, err := setup.Parse("kcp.yaml", before); err == nil {
			g.complete(s, topology.Build(f.Setup))
		}
		plain := !s.has("--pki-dir") && !s.has("--replace-authorities") && !s.has("--allow=restored-record")
		if again := g.clean; plain && again.who == who && again.text == string(before) && again.changes == g.changes-s.changes && s.changes > 0 && m.at == 0 {
			g.violate("up of an unchanged file has made %d writes", s.changes)
		}
		if g.clean.who = nil; plain {
			g.clean.who, g.clean.text, g.clean.changes = who, string(before), g.changes
		}
	}
	if code == 0 && (unlimited || s.is("add-shard") || s.is("remove-shard") || s.is("upgrade")) {
		g.applied = who.text()
	}
	if code == 0 && s.is("down") && !s.overtaken {
		g.downed(s)
	}
	return code
}

// downed checks for remains after a successful down.
func (g *game) downed(s *command) {
	for at, i := range g.owners {
		if i.home == s.home && g.runs(at) {
			g.violate("down succeeded, and components run in %v", at)
		}
	}
	if !s.has("--purge") {
		return
	}
	for _, c := range g.clusters {
		for k, o := range c.objects {
			if owner := g.owners[place{c.name, k.namespace}]; owner != nil && owner.home != s.home {
				continue // of another installation
			}
			if k.namespace != "" && o.GetLabels()["kcpctl.dev/setup"] == setupName && k.resource != leases {
				g.violate("down --purge succeeded, and %s is left on %s", k, c.name)
			}
		}
	}
}
