package content

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reason is why something in the snapshots does not fit together.
type Reason string

// The reasons.
const (
	// WithoutWorkspace is a logical cluster whose Workspace does not exist.
	WithoutWorkspace Reason = "WithoutWorkspace"
	// WithoutCluster is a Workspace whose logical cluster does not exist.
	WithoutCluster Reason = "WithoutLogicalCluster"
	// OnTwoShards is a logical cluster that two shards have.
	OnTwoShards Reason = "OnTwoShards"
	// BeingMoved is a logical cluster that was being moved.
	BeingMoved Reason = "BeingMoved"
	// WithoutExport are objects of an API whose APIExport does not exist.
	WithoutExport Reason = "WithoutAPIExport"
	// NotRegistered is a shard that the root shard does not know.
	NotRegistered Reason = "NotRegistered"
	// NotIncluded is a registered shard without a snapshot.
	NotIncluded Reason = "NotIncluded"
)

// Tear is something that does not fit together.
type Tear struct {
	Reason Reason `json:"reason"`
	// Path is the workspace: root:team. It is the ID of the logical cluster if kcp knows no path.
	Path string `json:"path,omitempty"`
	// Cluster is the logical cluster, and Shards are the shards concerned.
	Cluster string   `json:"logicalCluster,omitempty"`
	Shards  []string `json:"shards,omitempty"`
	// Message says what was found, Effect what kcp does with it after a restore, and Repair what to do.
	Message string `json:"message"`
	Effect  string `json:"effect"`
	Repair  string `json:"repair"`
}

// systemPrefix begins the names of logical clusters that each shard has for itself.
const systemPrefix = "system:"

// graph has the objects of all shards.
type graph struct {
	shards []*Shard
	// on are the shards that have a logical cluster, by its ID.
	on map[string][]string
	// at is where a Workspace is, and clusters is the first copy of each logical cluster.
	at       map[Owner]Workspace
	clusters map[string]Cluster
	missing  []string
}

// Tears compares the contents of the shards of one installation, and returns what does not fit together. Missing are
// shards of the installation that have no snapshot. Workspaces that kcp completes by itself are not among them: those
// without a logical cluster in their spec, and those that are being deleted.
func Tears(shards []*Shard, missing []string) []Tear {
	g := &graph{shards: shards, missing: missing, on: map[string][]string{}, at: map[Owner]Workspace{},
		clusters: map[string]Cluster{}}
	for _, s := range shards {
		maps.Copy(g.at, s.Workspaces)
		for id, c := range s.Clusters {
			if strings.HasPrefix(id, systemPrefix) {
				continue
			}
			g.on[id] = append(g.on[id], s.Name)
			if _, known := g.clusters[id]; !known {
				g.clusters[id] = c
			}
		}
	}
	out := slices.Concat(g.registration(), g.moves(), g.orphans(), g.lost(), g.identities())
	slices.SortStableFunc(out, func(a, b Tear) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Cluster, b.Cluster))
	})
	return out
}

// orphans are logical clusters without a Workspace.
func (g *graph) orphans() []Tear {
	var out []Tear
	for id, c := range g.clusters {
		if c.Owner.Cluster == "" || c.Deleting || !g.knows(c.Owner.Cluster) {
			continue
		}
		w, found := g.at[c.Owner]
		if found && w.UID == c.OwnerUID {
			continue
		}
		message := fmt.Sprintf("its Workspace %s is not in %s", c.Owner.Name, g.path(c.Owner.Cluster))
		if found {
			message = fmt.Sprintf("the Workspace %s in %s is another one: its UID differs", c.Owner.Name,
				g.path(c.Owner.Cluster))
		}
		out = append(out, Tear{
			Reason: WithoutWorkspace, Path: g.path(id), Cluster: id, Shards: g.on[id], Message: message,
			Effect: "it remains, reachable only by its ID, and nothing deletes it",
			Repair: "kcpctl restore repair --adopt creates its Workspace again, and --delete-orphans deletes it " +
				"with its objects",
		})
	}
	return out
}

// knows reports whether the shard of a logical cluster has a snapshot.
func (g *graph) knows(id string) bool { return len(g.on[id]) > 0 || len(g.missing) == 0 }

// lost are Workspaces without a logical cluster.
func (g *graph) lost() []Tear {
	var out []Tear
	for at, w := range g.at {
		if w.Cluster == "" || w.Deleting || g.knows(w.Cluster) && len(g.on[w.Cluster]) > 0 {
			continue
		}
		if len(g.missing) > 0 {
			continue // it can be on a shard without a snapshot
		}
		out = append(out, Tear{
			Reason: WithoutCluster, Path: g.child(at), Cluster: w.Cluster,
			Message: "its logical cluster is on no shard",
			Effect:  "it keeps the phase Ready, and its requests are refused",
			Repair: "its content is in a later backup, or lost; kcpctl restore repair --delete-missing deletes the " +
				"Workspace, so that it can be created again",
		})
	}
	return out
}

// moves are logical clusters that were being moved, and those that two shards have.
func (g *graph) moves() []Tear {
	var out []Tear
	moving := map[string]bool{}
	for _, s := range g.shards {
		for _, m := range s.Moves {
			if m.Phase == "Completed" || m.Phase == "Failed" || moving[m.Cluster] {
				continue
			}
			moving[m.Cluster] = true
			out = append(out, Tear{
				Reason: BeingMoved, Path: g.path(m.Cluster), Cluster: m.Cluster, Shards: g.on[m.Cluster],
				Message: "it was being moved to another shard, phase " + cmp.Or(m.Phase, "pending"),
				Effect:  "kcp continues the move with copies of different moments",
				Repair:  "take another backup when no workspace is being moved",
			})
		}
	}
	for id, on := range g.on {
		if len(on) > 1 && !moving[id] {
			out = append(out, Tear{
				Reason: OnTwoShards, Path: g.path(id), Cluster: id, Shards: on,
				Message: "shards " + strings.Join(on, " and ") + " have it",
				Effect:  "front-proxies send requests to either of them",
				Repair:  "take another backup when no workspace is being moved",
			})
		}
	}
	return out
}

// identities are objects of APIs whose APIExport does not exist.
func (g *graph) identities() []Tear {
	if len(g.missing) > 0 {
		return nil // the APIExport can be on a shard without a snapshot
	}
	exported := map[string]bool{}
	for _, s := range g.shards {
		for _, hash := range s.Exports {
			exported[hash] = true
		}
	}
	var out []Tear
	for _, s := range g.shards {
		for hash, of := range s.Identities {
			if exported[hash] || len(of.objects) == 0 || s.Encrypted > 0 {
				continue
			}
			out = append(out, Tear{
				Reason: WithoutExport, Path: of.API, Shards: []string{s.Name},
				Message: fmt.Sprintf("%d objects of %s are stored under the identity %s…, which no APIExport has",
					len(of.objects), of.API, hash[:12]),
				Effect: "the objects are not visible: an APIExport that is created again has another identity",
				Repair: "use a backup in which the APIExport exists",
			})
		}
	}
	return out
}

// registration compares the shards with those that the root shard knows.
func (g *graph) registration() []Tear {
	var root *Shard
	included := map[string]bool{}
	for _, s := range g.shards {
		included[s.Name] = true
		if len(s.Shards) > 0 {
			root = s
		}
	}
	if root == nil {
		return nil
	}
	var out []Tear
	for name := range root.Shards {
		if !included[name] && !slices.Contains(g.missing, name) {
			out = append(out, Tear{
				Reason: NotIncluded, Path: name, Shards: []string{name},
				Message: "it is registered, and has no snapshot",
				Effect:  "kcp schedules workspaces to a shard that does not exist",
				Repair:  "after the restore, run kcpctl remove-shard " + name,
			})
		}
	}
	for name := range included {
		if !root.Shards[name] {
			out = append(out, Tear{
				Reason: NotRegistered, Path: name, Shards: []string{name},
				Message: "it has a snapshot, and was not registered when the snapshot of the root shard began",
				Effect:  "kcp schedules nothing to it", Repair: "kcpctl up registers it",
			})
		}
	}
	return out
}

// path returns the path of a logical cluster, or its ID.
func (g *graph) path(id string) string { return cmp.Or(g.clusters[id].Path, id) }

// child returns the path of a Workspace.
func (g *graph) child(at Owner) string { return g.path(at.Cluster) + ":" + at.Name }
