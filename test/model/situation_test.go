package model_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	kcpoperator "github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// A situation is something in which a command must not write. It begins and ends within a step, so that the model goes
// on as if it had never been.

// refuses runs a command, which must write nothing.
func (g *game) refuses(who *operator, situation string, args ...string) {
	s := who.command(args...)
	g.logf("%s: %s", situation, s)
	code := s.run()
	g.logf("    exit code %d, %d writes: %s", code, s.changes, s.printed())
	g.counts[fmt.Sprintf("%s: exit code %d", situation, code)]++
	if s.changes > 0 { // what follows from it may have been reported
		problem := fmt.Sprintf("%s, and a command has made %d writes [%s]", situation, s.changes, s)
		g.problems = slices.Insert(g.problems, 0, problem)
	}
}

// home returns the place of the installation that an operator's file leads to, if it has a record.
func (g *game) home(who *operator) (place, bool) {
	f, err := setup.Parse("kcp.yaml", who.text())
	if err != nil {
		return place{}, false
	}
	t := topology.Build(f.Setup)
	at := place{who.contexts[t.Home.Context].name, t.Home.Namespace}
	inv := g.object(at, secrets, setupName+"-inventory")
	return at, inv != nil && g.entryOf(inv, "installation.json") != ""
}

// entryOf returns an entry of a Secret, decompressed.
func (w *world) entryOf(o *unstructured.Unstructured, name string) string {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	raw, _ := base64.StdEncoding.DecodeString(data[name])
	if z, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
		raw = must(io.ReadAll(z))
	}
	return string(raw)
}

// changed returns the arguments of a command that would write something: its operator's file has another log level.
// undo restores the file.
func (g *game) changed(who *operator, commands ...[]string) (args []string, undo func()) {
	text := who.text()
	s := who.setup()
	level := int32(rapid.IntRange(5, 9).Draw(g.t, "level"))
	s.Spec.Defaults.LogLevel = &level
	who.save(s)
	args = commands[rapid.IntRange(0, len(commands)-1).Draw(g.t, "command")]
	if !slices.Contains([]string{"down", "remove-shard"}, args[0]) {
		args = append(slices.Clone(args), bring...)
	}
	return args, func() { who.write(text) }
}

// wrongFile is a pipeline without a memory that has the file of another installation, or the context of another
// cluster.
func (g *game) wrongFile(who *operator) {
	if _, ok := g.home(who); !ok {
		return
	}
	ci := newOperator(g.world, "ci", filepath.Join(g.dir, fmt.Sprintf("ci-%d", g.steps)))
	maps.Copy(ci.contexts, who.contexts)
	file := who.setup()
	file.Metadata.Installation = setupName + "-aaaaaaaa"
	file.Spec.PKI.Store = v1alpha1.PKIStoreCluster
	ci.save(file)
	args, _ := g.changed(ci,
		up(), up("--allow=other-cluster"), up("--new-installation"), []string{"down", "--yes"},
		[]string{"down", "--yes", "--purge"}, []string{"certs", "renew"}, []string{"certs", "rotate-ca", "server"})
	g.refuses(ci, "the file is for another installation", args...)
}

// homeAway is the loss of the home namespace, with its record, while components or owners are elsewhere.
func (g *game) homeAway(who *operator) {
	at, ok := g.home(who)
	elsewhere := slices.ContainsFunc(slices.Collect(maps.Keys(g.owners)), func(p place) bool {
		return p != at && g.owners[p] == g.owners[at] && g.inFile(who, p) &&
			g.object(p, secrets, setupName+"-inventory") != nil
	})
	if !ok || !elsewhere {
		return
	}
	c, kept := g.cluster(at.cluster), map[key]*unstructured.Unstructured{}
	for k, o := range c.objects {
		if k.namespace == at.namespace || k == (key{namespaces, "", at.namespace}) {
			kept[k] = o
			delete(c.objects, k)
		}
	}
	args, undo := g.changed(who, up(), up("--allow=other-cluster"), up("--replace-authorities"))
	g.refuses(who, "the record is lost, and its components are elsewhere", args...)
	undo()
	maps.Copy(c.objects, kept)
}

// recordAway is the loss of all inventories while nothing runs, and the volumes of the root shard are there.
func (g *game) recordAway(who *operator) {
	at, ok := g.home(who)
	if !ok || g.runs(at) || g.object(at, claims, "data-demo-etcd-root-0") == nil {
		return
	}
	f, err := setup.Parse("kcp.yaml", who.text())
	if err != nil || topology.Build(f.Setup).Component("etcd/root") == nil {
		return
	}
	kept := map[*cluster]*unstructured.Unstructured{}
	k := key{secrets, at.namespace, setupName + "-inventory"}
	for _, c := range g.clusters {
		if o := c.objects[k]; o != nil {
			kept[c] = o
			delete(c.objects, k)
		}
	}
	args, undo := g.changed(who, up(), up("--allow=other-cluster"), up("--replace-authorities"))
	g.refuses(who, "the record is lost, and volumes are there", args...)
	undo()
	for c, o := range kept {
		c.objects[k] = o
	}
}

// inFile reports whether an operator's file has components in a place: kcpctl asks no other one.
func (g *game) inFile(who *operator, p place) bool {
	f, err := setup.Parse("kcp.yaml", who.text())
	return err == nil && slices.ContainsFunc(topology.Build(f.Setup).Components, func(c *topology.Component) bool {
		return c.Runs() && who.contexts[c.Cluster.Context].name == p.cluster && c.Cluster.Namespace == p.namespace
	})
}

// laterFormat is an installation that a later kcpctl has written, in a format that this one cannot keep.
func (g *game) laterFormat(who *operator) {
	const stamp = `{"number":9,"minWriter":9,"release":"v9.9.0"}`
	at, ok := g.home(who)
	if !ok {
		return
	}
	inv := g.object(at, secrets, setupName+"-inventory")
	before := inv.DeepCopy()
	if g.draw("format of", "record", "inventory") == "record" {
		edited(g.world, inv, "installation.json", func(tree map[string]any) { tree["format"] = json.RawMessage(stamp) })
	} else {
		annotate(inv, "kcpctl.dev/format", stamp)
	}
	args, undo := g.changed(who, up(), []string{"down", "--yes"}, []string{"certs", "renew"},
		[]string{"remove-shard", "alpha", "--yes"})
	g.refuses(who, "a later kcpctl has written the installation", args...)
	undo()
	inv.Object = before.Object
}

// laterFields are fields that a later kcpctl has added to the record, and which this one must keep.
func (g *game) laterFields(who *operator) {
	at, ok := g.home(who)
	if !ok {
		return
	}
	inv := g.object(at, secrets, setupName+"-inventory")
	edited(g.world, inv, "installation.json", func(tree map[string]any) { tree["later"] = "kept" })
	uid := inv.GetUID()
	args, undo := g.changed(who, []string{"up"}, []string{"certs", "renew"})
	g.run(who, mishap{}, args...)
	undo()
	g.clean.who = nil
	now := g.object(at, secrets, setupName+"-inventory")
	if now != nil && now.GetUID() == uid && !strings.Contains(g.entryOf(now, "installation.json"), `"later":"kept"`) {
		g.violate("a later kcpctl has added a field to the record, and it is gone")
	}
}

// laterEtcd is an etcd with a later image, which a later kcpctl has as its default.
func (g *game) laterEtcd(who *operator) {
	c := g.cluster(g.anyCluster())
	all := c.sorted(statefulSets, "kcp")
	if len(all) == 0 {
		return
	}
	etcd := c.objects[all[0]]
	uid, before := etcd.GetUID(), imageOf(etcd)
	setImage(etcd, "registry.example.com/etcd:v3.99.0")
	g.logf("%s of %s has a later image", all[0], c.name)
	args, undo := g.changed(who, []string{"up"}, []string{"certs", "renew"})
	g.run(who, mishap{}, args...)
	undo()
	g.clean.who = nil
	if now := c.objects[all[0]]; now != nil && now.GetUID() == uid {
		if !strings.HasSuffix(imageOf(now), ":v3.99.0") {
			g.violate("etcd v3.99.0 is replaced by an earlier one")
		}
		setImage(now, before)
	}
}

func imageOf(o *unstructured.Unstructured) string { return podOf(o).Containers[0].Image }

func setImage(o *unstructured.Unstructured, image string) {
	at := []string{"spec", "template", "spec", "containers"}
	containers, _, _ := unstructured.NestedSlice(o.Object, at...)
	containers[0].(map[string]any)["image"] = image
	if err := unstructured.SetNestedSlice(o.Object, containers, at...); err != nil {
		panic(err)
	}
}

// edited changes a JSON entry of a Secret.
func edited(w *world, o *unstructured.Unstructured, entry string, change func(tree map[string]any)) {
	tree := map[string]any{}
	if err := json.Unmarshal([]byte(w.entryOf(o, entry)), &tree); err != nil {
		panic(err)
	}
	change(tree)
	text := base64.StdEncoding.EncodeToString([]byte(jsonOf(tree)))
	if err := unstructured.SetNestedField(o.Object, text, "data", entry); err != nil {
		panic(err)
	}
	o.SetResourceVersion(w.next())
}

// foreignAuthority is a client CA that a user has added to the PKI Secret, or to the bundle of a cluster.
func (g *game) foreignAuthority(who *operator) {
	at, ok := g.home(who)
	if !ok {
		return
	}
	c := g.cluster(at.cluster)
	o, entry := c.objects[key{configMaps, at.namespace, setupName + "-ca"}], "client.crt"
	added := string(g.foreign(who.text()).CAs[topology.ClientCA].Cert)
	stored := c.objects[key{secrets, at.namespace, setupName + "-pki"}]
	inCluster := who.setup().Spec.PKI.Store != v1alpha1.PKIStoreDirectory && stored != nil
	if inCluster && rapid.Bool().Draw(g.t, "in the PKI") {
		o, entry = stored, "client-ca.bundle"
		added = base64.StdEncoding.EncodeToString([]byte(g.entryOf(o, entry) + added))
	} else if o != nil {
		text, _, _ := unstructured.NestedString(o.Object, "data", entry)
		added = text + added
	}
	if o == nil {
		return
	}
	before := o.DeepCopy()
	if err := unstructured.SetNestedField(o.Object, added, "data", entry); err != nil {
		panic(err)
	}
	o.SetResourceVersion(g.next())
	args, undo := g.changed(who, []string{"up"}, []string{"certs", "renew"}, []string{"certs", "rotate-ca", "etcd"})
	g.refuses(who, "a user has added an authority", args...)
	undo()
	o.Object = before.Object
}

// foreign is the PKI of another installation.
func (g *game) foreign(text []byte) *pki.State {
	f, err := setup.Parse("kcp.yaml", text)
	if err != nil {
		panic(err)
	}
	return must(pki.Ensure(topology.Build(f.Setup), &pki.State{}, pki.Options{Now: time.Now()})).State
}

// predecessor is an installation of kcp-operator that the setup takes over, and whose authorities it does not have. The
// garbage collector deletes what it owns when its RootShard is deleted.
func (g *game) predecessor(who *operator) {
	at, ok := g.home(who)
	if !ok {
		return
	}
	c, text := g.cluster(at.cluster), who.text()
	theirs := g.operatorObjects(at, text)
	maps.Copy(c.objects, theirs)
	s := who.setup()
	s.Spec.RootShard.Aliases = []string{kcpoperator.Service("RootShard", "old")}
	s.Spec.TakeOver = &v1alpha1.TakeOver{RootShard: "old"}
	who.save(s)
	args, _ := g.changed(who, []string{"up"}, []string{"up", "--force-conflicts"}, []string{"certs", "renew"})
	g.refuses(who, "kcp-operator has other authorities", args...)
	who.write(text)
	for k := range theirs {
		delete(c.objects, k)
	}
}

// operatorObjects are a RootShard, its Service, and the Secrets with its authorities.
func (g *game) operatorObjects(at place, text []byte) map[key]*unstructured.Unstructured {
	other := g.foreign(text)
	out := map[key]*unstructured.Unstructured{}
	add := func(resource, apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		maps.Copy(o.Object, fields)
		o.SetName(name)
		k := key{resource, at.namespace, name}
		g.stamp(k, o, nil)
		o.SetResourceVersion(g.next())
		out[k] = o
		return o
	}
	version, spec := kcpoperator.Group+"/"+kcpoperator.Version, map[string]any{"spec": map[string]any{}}
	root := add("rootshards", version, "RootShard", "old", spec)
	owned := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: root.GetAPIVersion(), Kind: root.GetKind(), Name: root.GetName(), UID: root.GetUID(),
		}})
	}
	service := add("services", "v1", "Service", kcpoperator.Service("RootShard", "old"), map[string]any{
		"spec": map[string]any{"ports": []any{map[string]any{"port": int64(6443)}}},
	})
	owned(service)
	pair := func(name string, cert, private []byte) {
		encode := base64.StdEncoding.EncodeToString
		owned(add(secrets, "v1", "Secret", name, map[string]any{
			"type": "kubernetes.io/tls", "data": map[string]any{"tls.crt": encode(cert), "tls.key": encode(private)},
		}))
	}
	for ca, name := range kcpoperator.AuthoritySecrets("old") {
		pair(name, other.CAs[ca].Cert, other.CAs[ca].Key)
	}
	pair(kcpoperator.ServiceAccountSecret("old"), other.CAs[topology.ClientCA].Cert, other.ServiceAccount.Key)
	return out
}
