package fakekcp

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
)

// Cluster is a logical cluster of a kcp that moves them.
type Cluster struct {
	// Path is its workspace, below root.
	Path string
	// Shard is the name of the shard that it is on.
	Shard string
	// Selector is the location selector of its workspace.
	Selector map[string]string
	// Annotations are those of its LogicalCluster, besides the ones that kcp sets.
	Annotations map[string]string
	// Phase is that of its LogicalCluster. Default: Ready.
	Phase string
	// Data is its content.
	Data map[string]string
}

// Name is the name of the logical cluster.
func (c Cluster) Name() string {
	return strings.ReplaceAll(strings.TrimPrefix(c.Path, "root:"), ":", "-") + "-id"
}

// Moves is a kcp that moves logical clusters as kcp v0.32 does: which ones are being moved is in the memory of one
// process of a shard, and its other processes serve them.
type Moves struct {
	k *Kcp
	// During is called before each phase of a migration ends, with the lock of the kcp held.
	During func(phase, cluster string)
	// Before is called before each request that is about moves, with the lock of the kcp held. If it returns false,
	// this request and all later ones fail, as if the client had ended.
	Before func() bool

	on     map[string]map[string]*Cluster // by shard and name
	memory map[string]map[string]bool
	// cancelled are the starts of shards whose processes refuse the requests to a logical cluster, because it has left
	// them, by shard and name.
	cancelled  map[string]map[string]int
	migrations map[string]*migration
	bound      bool
	ended      bool
}

type migration struct {
	cluster, to, from, phase, failure string
	annotations                       map[string]any
	copied, cleaned                   bool
}

// ServeMoves gives the kcp logical clusters, and lets it move them. Each request for a migration lets it advance by a
// phase.
func (k *Kcp) ServeMoves(all ...Cluster) *Moves {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moves = &Moves{
		k: k, on: map[string]map[string]*Cluster{}, memory: map[string]map[string]bool{}, migrations: map[string]*migration{},
		cancelled: map[string]map[string]int{},
	}
	for _, c := range all {
		if c.Phase == "" {
			c.Phase = "Ready"
		}
		c.Annotations, c.Data = maps.Clone(c.Annotations), maps.Clone(c.Data)
		k.moves.put(c.Shard, &c)
	}
	return k.moves
}

// Add adds a logical cluster, as a user who creates a workspace does. It is for During, where the lock is held.
func (m *Moves) Add(c Cluster) {
	c.Phase = "Ready"
	m.put(c.Shard, &c)
}

func (m *Moves) put(shard string, c *Cluster) {
	if m.on[shard] == nil {
		m.on[shard] = map[string]*Cluster{}
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	if c.Data == nil {
		c.Data = map[string]string{}
	}
	m.on[shard][c.Name()] = c
}

func (m *Moves) remember(shard, cluster string) {
	if m.memory[shard] == nil {
		m.memory[shard] = map[string]bool{}
	}
	m.memory[shard][cluster] = true
}

// Do calls f with the lock of the kcp held. It is for changes between two runs: a request of the first may not have
// ended.
func (m *Moves) Do(f func()) {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	f()
}

// Restart makes a shard forget what is in its memory. It is for During and Do.
func (m *Moves) Restart(shard string) { delete(m.memory, shard) }

// Unregister removes a shard, and returns what it was. It is for During and Do.
func (m *Moves) Unregister(shard string) kcp.Shard {
	was, _ := m.k.Shard(shard)
	m.k.Unregister(shard)
	return was
}

// Lose deletes an entry of a logical cluster. It is for During and Do.
func (m *Moves) Lose(shard, cluster, key string) { delete(m.on[shard][cluster].Data, key) }

// Annotate sets an annotation of a logical cluster. It is for During and Do.
func (m *Moves) Annotate(shard, cluster, key, value string) {
	m.on[shard][cluster].Annotations[key] = value
}

// Write reports whether a process of a shard acknowledges a write of a client. The leader knows what is being moved,
// other processes do not. It is for During and Do.
func (m *Moves) Write(shard, cluster, key, value string, leader bool) bool {
	c := m.on[shard][cluster]
	if c == nil || c.Phase != "Ready" || leader && m.memory[shard][cluster] {
		return false
	}
	c.Data[key] = value
	return true
}

// Bind binds the migration API, as an interrupted run may have done.
func (m *Moves) Bind() {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	m.bound = true
}

// Resume serves a new client, after Before has ended the previous one.
func (m *Moves) Resume() {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	m.ended, m.Before = false, nil
}

// On returns the logical cluster with a name and the shards that have it.
func (m *Moves) On(name string) (c Cluster, shards []string) {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	for _, shard := range slices.Sorted(maps.Keys(m.on)) {
		if found := m.on[shard][name]; found != nil {
			c, shards = *found, append(shards, shard)
		}
	}
	return c, shards
}

// Migrations returns the names of the migrations that are left.
func (m *Moves) Migrations() []string {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	return slices.Sorted(maps.Keys(m.migrations))
}

// advance does what the controllers of both shards do in a phase.
func (m *Moves) advance(name string, g *migration) {
	if m.During != nil {
		m.During(g.phase, g.cluster)
	}
	switch g.phase {
	case "Preparing":
		for shard := range m.on {
			if c := m.on[shard][g.cluster]; c != nil && (g.from == "" || g.from == shard) {
				g.from, g.phase = shard, "Migrating"
				if by := c.Annotations["internal.kcp.io/migrating"]; by != "" && by != "root:"+name {
					g.phase, g.failure = "Failed", "by "+by
					continue
				}
				c.Annotations["internal.kcp.io/migrating"] = "root:" + name
				m.remember(shard, g.cluster)
			}
		}
	case "Migrating":
		if _, registered := m.k.Shard(g.to); !registered {
			return
		}
		m.remember(g.to, g.cluster)
		if g.failure = "not found"; !m.memory[g.from][g.cluster] {
			return
		}
		c := *m.on[g.from][g.cluster]
		c.Annotations, c.Data = maps.Clone(c.Annotations), maps.Clone(c.Data)
		m.put(g.to, &c)
		g.failure, g.phase, g.copied = "", "OriginCleanup", true
	case "OriginCleanup":
		m.cancel(g.from, g.cluster)
		delete(m.on[g.from], g.cluster)
		delete(m.memory[g.from], g.cluster)
		g.phase, g.cleaned = "DestinationFinalize", true
	case "DestinationFinalize":
		if c := m.on[g.to][g.cluster]; c.Phase == "Ready" { // otherwise its controller is refused
			delete(c.Annotations, "internal.kcp.io/migrating")
			delete(m.memory[g.to], g.cluster)
			g.phase = "Completed"
		}
	}
}

// moved handles the requests of moves.
func (k *Kcp) moved(server, op string, r *http.Request) (Answer, bool) {
	m := k.moves
	if m == nil {
		return Answer{}, false
	}
	shard := strings.TrimPrefix(strings.TrimSuffix(server, "-shard"), "shard/")
	parts := append(strings.Split(r.URL.Path, "/"), "", "")
	if m.ended = m.ended || m.Before != nil && !m.Before(); m.ended {
		return Refuse(http.StatusInternalServerError, "InternalError", "ended"), true
	}
	switch {
	case op == "create apibindings" || op == "delete apibindings":
		m.bound = op == "create apibindings"
		return object(http.StatusOK, &unstructured.Unstructured{Object: bindingObject()}), true
	case op == "get apibindings" && !m.bound:
		return Refuse(http.StatusNotFound, "NotFound", "there is no binding"), true
	case op == "get apibindings":
		return object(http.StatusOK, &unstructured.Unstructured{Object: bindingObject()}), true
	case parts[2] == "system:admin" && op == "create logicalclusterdumps":
		return Refuse(http.StatusForbidden, "Forbidden", "only shards"), true
	case op == ListClusters:
		return m.list(shard), true
	case strings.HasPrefix(op, "list workspaces:"):
		return m.workspaces(shard), true
	case strings.HasSuffix(op, " logicalclustermigrations"):
		return m.migrate(op, r), true
	case parts[1] == "clusters" && strings.HasSuffix(parts[2], "-id"):
		return m.inCluster(shard, parts[2], r), true
	}
	return Answer{}, false
}

// cancel ends the requests to a logical cluster in the process of a shard for good.
func (m *Moves) cancel(shard, name string) {
	if m.cancelled[shard] == nil {
		m.cancelled[shard] = map[string]int{}
	}
	m.cancelled[shard][name] = m.k.restarts[serverOf(shard)]
}

func serverOf(shard string) string {
	if shard == "root" {
		return "root-shard"
	}
	return "shard/" + shard
}

// Serves reports whether the process of the shard of a logical cluster answers its requests.
func (m *Moves) Serves(name string) bool {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	for shard, all := range m.on {
		if start, left := m.cancelled[shard][name]; all[name] != nil && left && start == m.k.restarts[serverOf(shard)] {
			return false
		}
	}
	return true
}

func (m *Moves) migrate(op string, r *http.Request) Answer {
	if op == "list logicalclustermigrations" {
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(m.migrations)) {
			items = append(items, m.migrations[name].answer(name).Body)
		}
		return list("migration.kcp.io/v1alpha1", "LogicalClusterMigrationList", items)
	}
	if op == "create logicalclustermigrations" {
		o := m.k.read(r)
		cluster, _, _ := unstructured.NestedString(o.Object, "spec", "logicalCluster")
		to, _, _ := unstructured.NestedString(o.Object, "spec", "destinationShard")
		g := &migration{cluster: cluster, to: to, phase: "Preparing", annotations: map[string]any{}}
		for key, value := range o.GetAnnotations() {
			g.annotations[key] = value
		}
		m.migrations[o.GetName()] = g
		return m.migrations[o.GetName()].answer(o.GetName())
	}
	name := strings.Split(r.URL.Path, "/")[7]
	g := m.migrations[name]
	if g == nil {
		return Refuse(http.StatusNotFound, "NotFound", name+" not found")
	}
	switch r.Method {
	case http.MethodDelete:
		delete(m.migrations, name)
	case http.MethodPatch:
		var patch struct {
			Metadata struct{ Annotations map[string]any }
			Spec     struct{ DestinationShard string }
			Status   struct{ Phase string }
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			m.k.t.Errorf("fakekcp: body of %s: %v", r.URL, err)
		}
		maps.Copy(g.annotations, patch.Metadata.Annotations)
		if patch.Spec.DestinationShard != "" {
			g.to = patch.Spec.DestinationShard
		}
		if patch.Status.Phase != "" {
			g.phase = patch.Status.Phase
		}
	default:
		m.advance(name, g)
	}
	return g.answer(name)
}

// inCluster handles a request to a logical cluster.
func (m *Moves) inCluster(shard, name string, r *http.Request) Answer {
	groups := r.TLS.PeerCertificates[0].Subject.Organization
	masters := slices.Contains(groups, "system:masters")
	c := m.on[shard][name]
	switch {
	case m.memory[shard][name] && !slices.Contains(groups, "system:kcp:external-logical-cluster-admin"):
		return Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "logical cluster is being migrated")
	case strings.HasSuffix(r.URL.Path, "/logicalclusterdumps"):
		return m.dump(shard, name)
	case c == nil:
		return Refuse(http.StatusForbidden, "Forbidden", "LogicalCluster not found")
	case !masters && c.Phase != "Ready":
		return Refuse(http.StatusForbidden, "Forbidden", "not permitted due to phase "+c.Phase)
	case r.Method == http.MethodPatch:
		return m.patch(c, r)
	}
	return Answer{http.StatusOK, c.object()}
}

func (m *Moves) dump(shard, name string) Answer {
	if !m.memory[shard][name] {
		return Refuse(http.StatusNotFound, "NotFound", "logicalclusterdumps not found")
	}
	entries := []any{}
	if c := m.on[shard][name]; c != nil {
		for key, value := range c.Data {
			entries = append(entries, map[string]any{"key": key, "value": base64.StdEncoding.EncodeToString([]byte(value))})
		}
	}
	return Answer{http.StatusCreated, map[string]any{"status": map[string]any{"entries": entries}}}
}

func (m *Moves) patch(c *Cluster, r *http.Request) Answer {
	var patch struct {
		Metadata struct{ Annotations map[string]*string }
		Status   struct{ Phase string }
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		m.k.t.Errorf("fakekcp: body of %s: %v", r.URL, err)
	}
	for key, value := range patch.Metadata.Annotations {
		if value == nil {
			delete(c.Annotations, key)
		} else {
			c.Annotations[key] = *value
		}
	}
	if patch.Status.Phase != "" && strings.HasSuffix(r.URL.Path, "/status") {
		c.Phase = patch.Status.Phase
	}
	return Answer{http.StatusOK, c.object()}
}
