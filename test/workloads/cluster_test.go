package workloads_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

var clusterSteps = []step{
	{3, "add a cluster", (*game).addCluster},
	{1, "register a cluster twice", (*game).registerTwice},
	{2, "cordon", (*game).cordon},
	{2, "uncordon", (*game).uncordon},
	{1, "drain", (*game).drain},
	{1, "remove a cluster", (*game).removeCluster},
	{2, "remove a cluster by force and register it", (*game).removeByForce},
	{2, "add a node", (*game).addNode},
	{2, "lose a node", (*game).loseNode},
	{2, "lose a pod", (*game).losePod},
	{2, "narrow a schema", (*game).narrow},
	{3, "an administrator makes an object", (*game).administrate},
	{1, "an administrator scales", (*game).scaleBelow},
	{1, "rebalance", (*game).rebalance},
}

// disturb notes that something has happened that can stop pods.
func (g *game) disturb(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disturbed = what
}

// registeredNames returns the Clusters that are not deleted.
func (g *game) registeredNames() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(sortedKeys(g.registered), func(name string) bool {
		o := g.objects[id(g.compute, clusters, "", name)]
		return o == nil || deleting(o)
	})
}

func (g *game) unregisteredSites() (out []*site) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.sites {
		if !g.used(s) {
			out = append(out, s)
		}
	}
	return out
}

func (g *game) freeNames() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(clusterNames), func(name string) bool { return g.registered[name] != nil })
}

func (g *game) addCluster() {
	s, ok := pick(g, "site", g.unregisteredSites())
	name, ok2 := pick(g, "name", g.freeNames())
	if !ok || !ok2 {
		return
	}
	mode, level := g.draw("mode", "Push", "None"), g.draw("level", "baseline", "privileged")
	g.logf("add Cluster %s: site %s, %s, %s", name, s.name, mode, level)
	g.register(name, s, mode, level)
}

func (g *game) registerTwice() {
	name, ok := pick(g, "cluster", g.registeredNames())
	other, ok2 := pick(g, "name", g.freeNames())
	if !ok || !ok2 {
		return
	}
	g.mu.Lock()
	s := g.registered[name]
	g.mu.Unlock()
	g.logf("add Cluster %s, which is the same as %s", other, name)
	g.register(other, s, "Push", "baseline")
	g.pass(time.Duration(rapid.IntRange(1, 100).Draw(g.t, "seconds")) * time.Second)
	g.logf("delete Cluster %s", other)
	g.kcp.Delete(g.compute, clusters, "", other)
	g.pass(30 * time.Second)
}

// command changes a Cluster.
func (g *game) command(what, patch string) (name string, ok bool) {
	name, ok = pick(g, "cluster", g.registeredNames())
	if ok {
		g.logf("%s %s", what, name)
		g.kcp.Patch(g.compute, clusters, "", name, object("%s", patch))
	}
	return name, ok
}

func (g *game) cordon() { g.command("cordon", `{spec: {unschedulable: true}}`) }

func (g *game) uncordon() {
	g.command("uncordon", `{spec: {unschedulable: false}, metadata: {annotations: {`+api.AnnotationDrain+`: null}}}`)
}

func (g *game) drain() {
	g.disturb("drain")
	g.command("drain", `{spec: {unschedulable: true}, metadata: {annotations: {`+api.AnnotationDrain+`: "true"}}}`)
}

func (g *game) removeCluster() {
	if len(g.registeredNames()) < 2 {
		return
	}
	g.disturb("remove")
	name, ok := pick(g, "cluster", g.registeredNames())
	if ok {
		g.logf("remove Cluster %s", name)
		g.kcp.Delete(g.compute, clusters, "", name)
	}
}

// removeByForce removes a Cluster. What is in the cluster stays there, and is found when it is registered, perhaps
// under another name.
func (g *game) removeByForce() {
	name, ok := pick(g, "cluster", g.registeredNames())
	if !ok {
		return
	}
	g.disturb("remove by force")
	g.mu.Lock()
	s := g.registered[name]
	s.forgotten, s.givenUp = time.Now(), time.Now()
	g.mu.Unlock()
	g.logf("remove Cluster %s by force", name)
	g.kcp.Patch(g.compute, clusters, "", name, object(`{metadata: {annotations: {%s: "true"}}}`, api.AnnotationForceRemoval))
	g.kcp.Delete(g.compute, clusters, "", name)
	for range 30 {
		if g.pass(2 * time.Second); g.kcp.Get(g.compute, clusters, "", name) == nil {
			break
		}
	}
	g.stopSyncer(name)
	if g.kcp.Get(g.compute, clusters, "", name) != nil || g.chance("not again", 4) {
		return
	}
	free := g.freeNames()
	as := rapid.SampledFrom(append([]string{name}, slices.DeleteFunc(free, func(n string) bool { return n == name })...)).Draw(g.t, "as")
	level := g.draw("level", "baseline", "privileged")
	g.logf("register site %s as %s, %s", s.name, as, level)
	g.register(as, s, "Push", level)
}

func (g *game) siteWith(match func(*site) bool) (*site, bool) {
	g.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(g.sites), func(s *site) bool { return !g.used(s) || !match(s) })
	g.mu.Unlock()
	return pick(g, "site", all)
}

func (g *game) addNode() {
	if s, ok := g.siteWith(func(s *site) bool { return s.nodes < 5 }); ok {
		g.logf("add a node to %s", s.name)
		g.mu.Lock()
		s.addNode()
		g.mu.Unlock()
	}
}

func (g *game) loseNode() {
	s, ok := g.siteWith(func(s *site) bool { return s.nodes > 1 && !s.dead })
	if !ok {
		return
	}
	g.disturb("node")
	g.mu.Lock()
	defer g.mu.Unlock()
	all := sortedKeys(s.objects[nodes])
	if len(all) < 2 {
		return // the simulation has not seen its nodes since its API server came back
	}
	g.logf("%s loses %s", s.name, all[0])
	g.losePods(s, len(s.podsWhere((*pod).running))/len(all)+1)
	s.server.Delete("", nodes, "", all[0][1:])
}

func (g *game) losePod() {
	s, ok := g.siteWith(func(s *site) bool { return !s.dead })
	if !ok {
		return
	}
	g.disturb("pod")
	g.logf("%s loses a pod", s.name)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.losePods(s, 1)
	g.queue.poke()
}

// narrow makes a cluster serve a schema without a field, or with it.
func (g *game) narrow() {
	s, ok := g.siteWith(func(*site) bool { return true })
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disturbed = "schema"
	s.narrow = !s.narrow
	s.serveSchema()
	g.logf("%s serves a narrow schema: %v", s.name, s.narrow)
}

// administrate makes an object in a namespace of a user with a name that the user can use later.
func (g *game) administrate() {
	s, ok := g.siteWith(func(s *site) bool { return !s.down && !s.dead })
	if !ok {
		return
	}
	ws, ns := g.place()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range sortedKeys(s.objects[namespaces]) {
		o := s.objects[namespaces][k]
		if l := o.GetLabels(); l[api.LabelWorkspace] != ws || l[api.LabelNamespace] != ns || deleting(o) {
			continue
		}
		app := g.draw("name", appNames...)
		for n := range 6 { // ConfigMaps of users get these names next
			name := fmt.Sprint(app, "-files-", g.revisions+1+n)
			if s.get(configMaps, o.GetName(), name) != nil {
				continue
			}
			g.logf("an administrator of %s makes ConfigMap %s/%s", s.name, o.GetName(), name)
			made := s.server.Merge("", configMaps, o.GetName(), name, object(`{apiVersion: v1, kind: ConfigMap, metadata: {labels: {app.kubernetes.io/managed-by: kyverno}}, data: {policy: strict}}`))
			s.administrators[configMaps+" "+o.GetName()+"/"+name] = encoded(made.Object["data"])
		}
		return
	}
}

// scaleBelow is an administrator who scales a Deployment in a cluster.
func (g *game) scaleBelow() {
	s, ok := g.siteWith(func(s *site) bool { return !s.down && !s.dead && len(s.objects[deployments]) > 0 })
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all := sortedKeys(s.objects[deployments])
	o := s.objects[deployments][all[rapid.IntRange(0, len(all)-1).Draw(g.t, "Deployment")]]
	n := rapid.IntRange(0, 9).Draw(g.t, "replicas")
	g.logf("an administrator of %s scales %s/%s to %d", s.name, o.GetNamespace(), o.GetName(), n)
	root := ownerOf(deployments, o)
	g.excused[root], g.touched[root], g.disturbed = "administrator", "administrator", "administrator"
	s.server.Patch("", deployments, o.GetNamespace(), o.GetName(), object(`{spec: {replicas: %d}}`, n))
}

func (g *game) rebalance() {
	g.disturb("rebalance")
	g.logf("rebalance")
	if g.kcp.Get(g.compute, exports, "", api.ExportWorkloads) != nil {
		g.kcp.Patch(g.compute, exports, "", api.ExportWorkloads, object(`{metadata: {annotations: {%s: %q}}}`, api.AnnotationRebalanceRequest, g.revision()))
	}
}
