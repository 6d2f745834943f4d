package workloads_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var mishapSteps = []step{
	{6, "cut a link", (*game).cut},
	{3, "cut all links", (*game).cutAll},
	{4, "repair a link", (*game).repair},
	{4, "refuse credentials", (*game).refuseCredentials},
	{3, "stop an API server", (*game).stopServer},
	{2, "power failure", (*game).powerFailure},
	{2, "kcp does not answer", (*game).stopKCP},
	{5, "restart the controller", (*game).restart},
	{1, "restart the controller each minute", (*game).restartOften},
	{2, "stop the controller", (*game).stopController},
	{4, "back up kcp", (*game).backUp},
	{2, "restore kcp", (*game).restore},
	{1, "make the compute workspace again", (*game).remakeCompute},
	{8, "time passes", (*game).wait},
	{6, "everything heals", func(g *game) { g.settle(g) }},
}

// needsOf returns what the pods of a workload need.
func needsOf(o *unstructured.Unstructured) (out []need) {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		from, _, _ := unstructured.NestedSlice(c.(map[string]any), "envFrom")
		for _, e := range from {
			name, _, _ := unstructured.NestedString(e.(map[string]any), "configMapRef", "name")
			out = append(out, need{configMaps, name})
		}
	}
	volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		name, _, _ := unstructured.NestedString(v.(map[string]any), "persistentVolumeClaim", "claimName")
		out = append(out, need{claims, name})
	}
	return out
}

// set changes the world, and ends the watches of links that do not work then.
func (g *game) set(change func()) {
	g.mu.Lock()
	change()
	g.mu.Unlock()
	g.breakBroken()
}

// seconds draws how long a mishap lasts: around the limits of heartbeats and evictions.
func (g *game) seconds() time.Duration {
	return time.Duration(rapid.SampledFrom([]int{0, 5, 30, 45, 75, 110, 150, 300, 4000}).Draw(g.t, "seconds")) * time.Second
}

func (g *game) cut() {
	s, ok := g.siteWith(func(s *site) bool { return s.cut == "" })
	if !ok {
		return
	}
	g.disturb("cut")
	how := g.draw("how", "refused", "silent")
	g.logf("the link to %s is cut: %s", s.name, how)
	g.set(func() { s.cut = how })
	g.pass(g.seconds())
}

func (g *game) cutAll() {
	g.disturb("cut")
	g.logf("all links are cut")
	g.set(func() {
		for _, s := range g.sites {
			s.cut = "refused"
		}
	})
	g.pass(g.seconds())
	g.logf("all links are repaired")
	g.set(func() {
		for _, s := range g.sites {
			s.cut = ""
		}
	})
}

func (g *game) repair() {
	if s, ok := g.siteWith(func(s *site) bool { return s.cut != "" || s.down || s.dead || s.refused }); ok {
		g.logf("%s is repaired", s.name)
		g.set(func() { g.revive(s) })
	}
}

// revive repairs a site. The world is locked.
func (w *world) revive(s *site) {
	s.cut, s.down, s.dead, s.dirty = "", false, false, true
	s.refuse(false)
	w.queue.poke()
}

// refuseCredentials makes a cluster, or all, refuse the credentials of the controller for some time.
func (g *game) refuseCredentials() {
	s, ok := g.siteWith(func(s *site) bool { return !s.refused })
	if !ok {
		return
	}
	all := []*site{s}
	if g.chance("all", 3) {
		all = g.sites
	}
	g.disturb("credentials")
	g.mu.Lock()
	for _, s := range all {
		push := false
		for _, name := range sortedKeys(g.registered) {
			push = push || g.registered[name] == s && g.syncers[name] == nil
		}
		if push {
			g.logf("%s refuses the credentials", s.name)
			s.refuse(true)
		}
	}
	g.mu.Unlock()
	g.pass(g.seconds())
	if g.chance("for longer", 3) {
		return
	}
	g.logf("the credentials are renewed")
	g.mu.Lock()
	for _, s := range g.sites {
		s.refuse(false)
	}
	g.mu.Unlock()
}

func (g *game) stopServer() {
	s, ok := g.siteWith(func(s *site) bool { return !s.down })
	if !ok {
		return
	}
	g.disturb("API server")
	g.logf("the API server of %s stops", s.name)
	g.set(func() { s.down = true })
	g.pass(g.seconds())
	if !g.chance("for longer", 3) {
		g.logf("the API server of %s starts", s.name)
		g.set(func() { g.revive(s) })
	}
}

func (g *game) powerFailure() {
	s, ok := g.siteWith(func(s *site) bool { return !s.dead })
	if !ok {
		return
	}
	g.disturb("power failure")
	g.logf("%s has a power failure", s.name)
	g.set(func() {
		g.losePods(s, len(s.pods))
		s.dead = true
	})
	g.pass(g.seconds())
}

func (g *game) stopKCP() {
	g.disturb("kcp")
	g.logf("kcp does not answer")
	g.set(func() { g.down, g.outage.from = true, time.Now() })
	g.pass(g.seconds())
	g.logf("kcp answers")
	g.set(func() { g.down, g.outage.to = false, time.Now() })
}

func (g *game) restart() {
	crash := g.chance("crash", 2)
	g.logf("the controller starts again, crash: %v", crash)
	g.killController(crash)
	g.start()
}

func (g *game) restartOften() {
	g.logf("the controller starts again each minute")
	for range rapid.IntRange(2, 6).Draw(g.t, "times") {
		g.killController(true)
		g.start()
		g.pass(time.Minute)
	}
}

func (g *game) stopController() {
	g.disturb("controller")
	g.logf("the controller stops")
	g.killController(false)
	g.pass(g.seconds())
	g.logf("the controller starts")
	g.start()
}

func (g *game) backUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logf("kcp is backed up")
	registered := map[string]*site{}
	for name, s := range g.registered {
		registered[name] = s
	}
	g.snapshot = &backup{g.kcp.Snapshot(), g.compute, registered}
}

// restore restores a backup of kcp.
func (g *game) restore() {
	if g.snapshot == nil || g.snapshot.compute != g.compute {
		return
	}
	g.disturb("restore")
	g.logf("kcp is restored")
	g.reset()
	g.mu.Lock()
	pulled := map[string]*site{}
	for name, s := range g.registered {
		if text(g.objects[id(g.compute, clusters, "", name)], "spec", "syncMode") == "None" && g.syncers[name] == nil {
			pulled[name] = s
		}
	}
	g.mu.Unlock()
	for _, name := range sortedKeys(pulled) {
		g.runSyncer(name, pulled[name]) // the user has stopped it when the Cluster was removed
	}
}

// reset makes kcp, and what the rules know, what they were at the time of the backup.
func (g *game) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.restored = time.Now()
	g.kcp.Restore(g.snapshot.Snapshot)
	g.queue.take() // what has not been seen yet
	g.registered = map[string]*site{}
	for name, s := range g.snapshot.registered {
		g.registered[name] = s
	}
	for _, s := range g.sites {
		s.forgotten = time.Now()
	}
	g.reread()
}

// remakeCompute makes the compute workspace again, as after it was deleted by mistake, with all Clusters.
func (g *game) remakeCompute() {
	g.disturb("compute")
	g.logf("the compute workspace is made again")
	g.killController(true)
	names := g.registeredNames()
	g.mu.Lock()
	before := map[string]*site{}
	for name, s := range g.registered {
		before[name] = s
	}
	g.registered, g.snapshot = map[string]*site{}, nil
	for name, s := range before {
		if !slices.Contains(names, name) {
			s.forgotten = time.Now() // its removal does not end any longer
		}
	}
	g.mu.Unlock()
	for _, name := range sortedKeys(before) {
		g.stopSyncer(name)
	}
	g.makeCompute()
	for _, name := range names {
		g.register(name, before[name], "Push", "baseline")
	}
	g.start()
}

func (g *game) wait() {
	d := rapid.SampledFrom([]time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute, 70 * time.Minute}).Draw(g.t, "time")
	g.logf("%s pass", d)
	g.pass(d)
}
