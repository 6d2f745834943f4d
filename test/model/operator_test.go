package model_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
)

// setupName is the name of the setup.
const setupName = "demo"

// operator is a user with a machine: a setup file, PKI directories, contexts, and the state that kcpctl keeps there.
type operator struct {
	world    *world
	name     string
	machine  string
	dir      string
	contexts map[string]*cluster
	// runs is the number of started commands.
	runs int
}

func newOperator(w *world, name, dir string) *operator {
	o := &operator{world: w, name: name, machine: "machine-of-" + name, dir: filepath.Join(dir, name), contexts: map[string]*cluster{}}
	for _, c := range w.clusters {
		o.contexts[c.name] = c
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		panic(err)
	}
	return o
}

// shorten removes the temporary directory, whose name differs in each run, from a text.
func (o *operator) shorten(text string) string {
	return strings.ReplaceAll(text, filepath.Dir(o.dir)+"/", "")
}

func (o *operator) file() string { return filepath.Join(o.dir, "kcp.yaml") }

func (o *operator) cluster(c topology.Cluster) (*cluster, error) {
	if cl := o.contexts[c.Context]; cl != nil {
		return cl, nil
	}
	return nil, fmt.Errorf("there is no context %q", c.Context)
}

// command returns a command of the operator. All machines have the same host name, and no process has its PID.
func (o *operator) command(args ...string) *command {
	o.runs++
	return &command{
		world: o.world, who: o, args: args,
		holder: kube.Holder{Host: "localhost", PID: 1<<22 + o.runs, Machine: o.machine, User: o.name},
	}
}

func (o *operator) text() []byte {
	text, err := os.ReadFile(o.file())
	if err != nil {
		panic(err)
	}
	return text
}

func (o *operator) write(text []byte) {
	if err := os.WriteFile(o.file(), text, 0o600); err != nil {
		panic(err)
	}
}

// setup returns the current file, without defaults.
func (o *operator) setup() *v1alpha1.Setup {
	var tree any
	if err := yaml.Unmarshal(o.text(), &tree); err != nil {
		panic(err)
	}
	s := &v1alpha1.Setup{}
	if err := json.Unmarshal([]byte(jsonOf(tree)), s); err != nil {
		panic(err)
	}
	return s
}

func (o *operator) save(s *v1alpha1.Setup) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err)
	}
	o.write(append(text, '\n'))
}

// The names of shards, front-proxies and clusters in the model.
var (
	shardNames   = []string{"alpha", "beta", "cache"}
	proxyNames   = []string{"main", "west"}
	clusterNames = []string{"eu", "us", "ap"}
)

func urlOf(n int) string { return fmt.Sprintf("https://10.0.0.%d:6443", n) }

// shardOf returns a shard, with a URL for other clusters.
func shardOf(name, cluster string, etcd *v1alpha1.Etcd) v1alpha1.Shard {
	s := v1alpha1.Shard{Name: name}
	s.URL, s.Cluster, s.Etcd = urlOf(10+slices.Index(shardNames, name)), cluster, etcd
	return s
}

// etcdOf returns an etcd of a kind.
func etcdOf(kind string) *v1alpha1.Etcd {
	yes, no, three := true, false, int32(3)
	return map[string]*v1alpha1.Etcd{
		"managed":             {Managed: &v1alpha1.ManagedEtcd{}},
		"managed of three":    {Managed: &v1alpha1.ManagedEtcd{Replicas: &three}},
		"managed, ephemeral":  {Managed: &v1alpha1.ManagedEtcd{Ephemeral: true}},
		"embedded":            {Embedded: &v1alpha1.EmbeddedEtcd{Ephemeral: &no}},
		"embedded, ephemeral": {Embedded: &v1alpha1.EmbeddedEtcd{Ephemeral: &yes}},
		"external":            {External: &v1alpha1.ExternalEtcd{Endpoints: []string{"https://10.0.1.1:2379"}, TLSSecret: "etcd"}},
		"external, other":     {External: &v1alpha1.ExternalEtcd{Endpoints: []string{"https://10.0.1.2:2379"}, TLSSecret: "etcd"}},
		"external, prefix":    {External: &v1alpha1.ExternalEtcd{Endpoints: []string{"https://10.0.1.1:2379"}, TLSSecret: "etcd", Prefix: "/other"}},
	}[kind]
}

// etcdKinds are the kinds of etcdOf, the most common first.
var etcdKinds = []string{
	"managed", "embedded", "managed of three", "embedded, ephemeral", "external", "external, other", "external, prefix", "managed, ephemeral",
}

// base returns the initial setup.
func base(clusters []string) *v1alpha1.Setup {
	s := &v1alpha1.Setup{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindSetup}
	s.Metadata.Name = setupName
	s.Spec.External.Hostname = "10.0.0.1"
	for _, name := range clusters {
		s.Spec.Clusters = append(s.Spec.Clusters, v1alpha1.Cluster{Name: name, Context: name, Namespace: "kcp"})
	}
	s.Spec.RootShard.URL = urlOf(2)
	s.Spec.RootShard.Cluster = clusters[0]
	proxy := v1alpha1.FrontProxy{Name: "main"}
	proxy.Cluster = clusters[0]
	s.Spec.FrontProxies = []v1alpha1.FrontProxy{proxy}
	return s
}

// copyDirectory replaces a directory by a copy of another one, or empties it if the other does not exist.
func copyDirectory(from, to string) {
	if err := os.RemoveAll(to); err != nil {
		panic(err)
	}
	if _, err := os.Stat(from); err != nil {
		return
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		panic(err)
	}
	_ = filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		mode := os.FileMode(0o600)
		if d.IsDir() {
			mode = 0o700
		}
		return os.Chmod(path, mode)
	})
}
