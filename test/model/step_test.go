package model_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// mishap draws the mishap of a command.
func (g *game) mishap(who *operator) mishap {
	kind := g.draw("mishap", "none", "none", "none", "killed", "met", "cut off")
	if kind == "none" {
		return mishap{}
	}
	m := mishap{at: rapid.IntRange(1, 40).Draw(g.t, "at"), after: rapid.Bool().Draw(g.t, "after")}
	switch kind {
	case "killed":
		m.crash = true
	case "cut off":
		m.cut = time.Duration(rapid.IntRange(2, 40).Draw(g.t, "seconds")) * time.Second
	}
	if kind == "met" || kind == "cut off" && rapid.Bool().Draw(g.t, "met too") {
		other := g.operators[1-slices.Index(g.operators, who)]
		t := g.t
		args := [][]string{
			{"up", "--timeout", "30s", "--skip-canary"}, {"up", "--timeout", "30s", "--skip-canary"}, {"down", "--yes"}, {"down", "--yes", "--purge"},
			{"certs", "renew", "--timeout", "30s", "--skip-canary"}, {"remove-shard", "alpha", "--yes"},
		}[rapid.IntRange(0, 5).Draw(t, "met by")]
		m.meanwhile = func() { g.run(other, mishap{}, args...) }
	}
	return m
}

var bring = []string{"--timeout", "30s", "--skip-canary"}

func (g *game) up(who *operator) {
	args := append([]string{"up"}, bring...)
	for _, f := range []struct {
		in   int
		args func() []string
	}{
		{6, func() []string { return []string{"--only", g.draw("only", g.components(who)...)} }},
		{10, func() []string {
			id := g.draw("allowed", "shard/alpha", "shard/beta", "cache-server", "root-shard")
			return []string{"--allow=data-change=" + id, "--allow=data-change=" + etcdID(id)}
		}},
		{12, g.acceptLoss},
		{12, func() []string { return []string{"--allow=release-change"} }},
		{16, func() []string { return []string{"--replace-authorities"} }},
		{8, func() []string { return []string{"--allow=restored-record"} }},
		{12, func() []string {
			return []string{"--pki-dir", filepath.Join(who.dir, g.draw("directory", "pki", "pkii", "backup"))}
		}},
	} {
		if g.chance("flag", f.in) {
			args = append(args, f.args()...)
		}
	}
	g.run(who, g.mishap(who), args...)
}

func etcdID(id string) string {
	switch id {
	case "root-shard":
		return "etcd/root"
	case "cache-server":
		return "etcd/cache"
	}
	return "etcd/" + topology.ID(id).Name()
}

// components returns the components in an operator's file.
func (g *game) components(who *operator) []string {
	out := []string{"root-shard"}
	f, err := setup.Parse("kcp.yaml", who.text())
	if err != nil {
		return out
	}
	for _, c := range topology.Build(f.Setup).Components {
		if c.Kind != topology.Base && c.Kind != topology.RootShard {
			out = append(out, string(c.ID()))
		}
	}
	return out
}

func (g *game) revertAndUp(who *operator) {
	if g.applied != nil {
		who.write(g.applied)
		g.logf("%s: reverts the file", who.name)
	}
	g.run(who, mishap{}, append([]string{"up"}, bring...)...)
}

func (g *game) createWorkspace(*operator) {
	var on []*process
	for _, p := range g.sortedServers() {
		root := g.root(p.owner)
		if p.store == nil || root == nil || p.id.Kind() == topology.CacheServer {
			continue
		}
		name := p.id.Name()
		if p.id.Kind() == topology.RootShard {
			name = topology.RootShardName
		}
		if r := root.store.shards[name]; r != nil && !r.cordoned {
			on = append(on, p)
		}
	}
	if len(on) == 0 {
		return
	}
	p := on[rapid.IntRange(0, len(on)-1).Draw(g.t, "shard")]
	g.spaceNumber++
	s := &workspace{name: fmt.Sprintf("workspace %d", g.spaceNumber), owner: p.owner, of: p.id, store: p.store, sealed: p.encryption.key}
	g.spaces = append(g.spaces, s)
	g.logf("%s is made on %s", s.name, p.id)
}

func (g *game) deleteWorkspace(*operator) {
	all := slices.DeleteFunc(slices.Clone(g.spaces), func(s *workspace) bool { return s.name[:5] != "works" })
	if len(all) == 0 {
		return
	}
	s := all[rapid.IntRange(0, len(all)-1).Draw(g.t, "workspace")]
	g.logf("%s is deleted", s.name)
	g.forget(s)
}

func (g *game) addShard(who *operator) {
	name := g.draw("name", "alpha", "beta")
	args := append([]string{"add-shard", name, "--url", urlOf(10 + slices.Index(shardNames, name)), "--cluster", g.anyCluster()}, bring...)
	args = append(args, "--etcd", g.draw("etcd", "managed", "embedded"))
	g.run(who, g.mishap(who), args...)
}

func (g *game) removeShard(who *operator) {
	args := []string{"remove-shard", g.draw("name", "alpha", "beta", "cache", "gama"), "--yes", "--timeout", "30s"}
	if rapid.Bool().Draw(g.t, "purge") {
		args = append(args, "--purge")
	}
	g.run(who, g.mishap(who), args...)
}

func (g *game) down(who *operator) {
	args := []string{"down", "--yes"}
	if g.chance("purge", 3) {
		args = append(args, "--purge")
	}
	g.run(who, g.mishap(who), args...)
}

func (g *game) renew(who *operator) {
	args := append([]string{"certs", "renew"}, bring...)
	if rapid.Bool().Draw(g.t, "one") {
		args = append(args, g.draw("component", g.components(who)...))
	}
	g.run(who, g.mishap(who), args...)
}

func (g *game) rotate(who *operator) {
	all := []string{"server", "client", "etcd", "service-account"}
	if g.rotated != "" { // a rotation that began is likely to be finished
		all = append(all, slices.Repeat([]string{g.rotated}, 8)...)
	}
	which := g.draw("authority", all...)
	g.rotated = which
	args := []string{"certs", "rotate-ca", which}
	if which == "service-account" {
		args = []string{"certs", "rotate-service-account-key"}
	}
	args = append(args, bring...)
	switch g.draw("how", "", "--pause", "--finish") {
	case "--pause":
		args = append(args, "--pause")
	case "--finish":
		args = append(args, "--finish", "--yes")
	}
	g.run(who, g.mishap(who), args...)
}

func (g *game) upgrade(who *operator) {
	args := append([]string{"upgrade", g.draw("version", "v0.32.3", "v0.31.2", "v0.30.0")}, bring...)
	if g.chance("release", 3) {
		args = append(args, "--allow=release-change")
	}
	g.run(who, g.mishap(who), args...)
}

// fetch copies the setup file of the other operator.
func (g *game) fetch(who *operator) {
	other := g.operators[1-slices.Index(g.operators, who)]
	who.write(other.text())
	g.logf("%s: has the file of %s", who.name, other.name)
}

// copyDirectories copies PKI directories: to and from a backup, and between machines.
func (g *game) copyDirectories(who *operator) {
	at := func(o *operator, name string) string { return filepath.Join(o.dir, name) }
	other := g.operators[1-slices.Index(g.operators, who)]
	what := g.draw("directory", "synchronised", "backed up", "restored", "exported", "imported")
	g.logf("%s: PKI %s", who.name, what)
	g.clean.who = nil
	switch what {
	case "synchronised":
		copyDirectory(at(other, "pki"), at(who, "pki"))
	case "backed up":
		copyDirectory(at(who, "pki"), at(who, "backup"))
	case "restored":
		if _, err := os.Stat(at(who, "backup")); err == nil {
			copyDirectory(at(who, "backup"), at(who, "pki"))
		}
	case "exported":
		copyDirectory("", at(who, "backup"))
		g.run(who, mishap{}, "certs", "export", at(who, "backup"))
	case "imported":
		g.run(who, g.mishap(who), "certs", "import", at(who, "backup"))
	}
}

// secretBackups copies the Secrets of a cluster, or brings a copy back.
func (g *game) secretBackups(who *operator) {
	// The record and the PKI are on the cluster of the root shard.
	c := g.cluster(g.draw("cluster", append(names(g.clusters), slices.Repeat([]string{who.setup().Spec.RootShard.Cluster}, 4)...)...))
	g.clean.who = nil
	if b := g.backups[c.name]; b != nil && rapid.Bool().Draw(g.t, "restored") {
		g.logf("the Secrets on %s are restored", c.name)
		g.restore(c, b)
		return
	}
	g.logf("the Secrets on %s are backed up", c.name)
	g.backups[c.name] = c.backup()
}

// losePod deletes a pod with data on an emptyDir. Its loss is allowed.
func (g *game) losePod(*operator) {
	for _, p := range g.sortedServers() {
		if p.store != nil && p.store.ephemeral && sourceOf(p.cluster.objects[p.place]).embedded && p.id.Kind() != topology.RootShard {
			g.logf("the pod of %s is lost", p.id)
			g.emptied(p)
			return
		}
	}
}

func (g *game) volumesSlow(*operator) {
	g.slowVolumes = time.Duration(rapid.IntRange(0, 60).Draw(g.t, "seconds")) * time.Second
	g.logf("volumes take %s to be deleted", g.slowVolumes)
}

func (g *game) wait(*operator) {
	d := time.Duration(rapid.IntRange(1, 30).Draw(g.t, "seconds")) * time.Second
	g.logf("%s pass", d)
	time.Sleep(d)
}
