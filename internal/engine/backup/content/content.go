// Package content reads which workspaces shards have, from their snapshots or from what they serve, and finds what does
// not fit together: snapshots of several etcds are never of the same moment. The package is pure.
package content

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
)

// Shard has the objects of a snapshot that connect shards.
type Shard struct {
	// Name is the name of the shard in kcp.
	Name string
	// Workspaces are the Workspaces by their logical cluster and name.
	Workspaces map[Owner]Workspace
	// Clusters are the logical clusters by their ID.
	Clusters map[string]Cluster
	// Exports are the identities of APIExports, by logical cluster and name.
	Exports map[Owner]string
	// Identities are those under which the shard stores objects of bound APIs.
	Identities map[string]*Identity
	// Shards are the registered shards, which the root shard has.
	Shards map[string]bool
	// Moves are the LogicalClusterMigrations.
	Moves map[Owner]Move
	// Encrypted counts the objects that could not be read because they are encrypted.
	Encrypted int

	seed maphash.Seed
}

// Identity is the identity of an APIExport (kcp: pkg/identity).
type Identity struct {
	// API is a resource that is stored under the identity.
	API string
	// objects are the hashes of the keys that exist.
	objects map[uint64]struct{}
}

// Move is a LogicalClusterMigration.
type Move struct{ Cluster, Phase string }

// Owner is the name of an object in a logical cluster.
type Owner struct{ Cluster, Name string }

// Workspace is a Workspace.
type Workspace struct {
	UID string
	// Cluster is the logical cluster in its spec, and Scheduled the one in its annotation, which kcp sets before (kcp:
	// pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
	Cluster, Scheduled string
	Deleting           bool
}

// Cluster is a LogicalCluster.
type Cluster struct {
	// Path is where users find it: root:team. It is empty if kcp has not set it.
	Path     string
	Owner    Owner
	OwnerUID string
	Deleting bool
}

// The formats of keys below the prefix of an etcd (kcp: pkg/etcd/keys.go): GROUP/RESOURCE/customresources/CLUSTER/NAME
// for CustomResourceDefinitions, and GROUP/RESOURCE/IDENTITY/CLUSTER/NAME for bound APIs.
const (
	resourceClusters   = "core.kcp.io/logicalclusters"
	resourceShards     = "core.kcp.io/shards"
	resourceWorkspaces = "tenancy.kcp.io/workspaces"
	resourceExports    = "apis.kcp.io/apiexports"
	resourceMigrations = "migration.kcp.io/logicalclustermigrations"

	customResources = "customresources"
	// identitySize is the length of an identity: a SHA-256 in hexadecimal digits.
	identitySize = 64
)

// encryptedPrefix begins a value that is encrypted at rest (Kubernetes:
// staging/src/k8s.io/apiserver/pkg/storage/value).
const encryptedPrefix = "k8s:enc:"

// NewShard returns the content of a shard without objects.
func NewShard(name string) *Shard {
	return &Shard{
		Name: name, Workspaces: map[Owner]Workspace{}, Clusters: map[string]Cluster{}, Exports: map[Owner]string{},
		Identities: map[string]*Identity{}, Shards: map[string]bool{}, Moves: map[Owner]Move{},
		seed: maphash.MakeSeed(),
	}
}

// split divides a key without its prefix. Kind is "customresources" or an identity.
func split(key string) (resource, kind, cluster, name string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	if len(parts) < 5 || parts[2] != customResources && len(parts[2]) != identitySize {
		return "", "", "", "", false
	}
	return parts[0] + "/" + parts[1], parts[2], parts[3], strings.Join(parts[4:], "/"), true
}

// ClusterOf returns the logical cluster of an object by its key without the prefix of the etcd. It is empty for other
// keys. Built-in resources have keys GROUP/RESOURCE/CLUSTER/NAME.
func ClusterOf(key string) string {
	if _, _, cluster, _, ok := split(key); ok {
		return cluster
	}
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	if len(parts) < 4 {
		return ""
	}
	return parts[2]
}

// Wants reports whether Add has a use for a key, which is without the prefix of the etcd.
func Wants(key string) bool {
	resource, kind, _, _, ok := split(key)
	if !ok {
		return false
	}
	switch resource {
	case resourceClusters, resourceShards, resourceWorkspaces, resourceExports, resourceMigrations:
		return true
	}
	return kind != customResources
}

// object is what Add reads of any object.
type object struct {
	Metadata struct {
		UID               string
		Annotations       map[string]string
		DeletionTimestamp string
	}
	Spec struct {
		Cluster        string
		LogicalCluster string
		Owner          struct{ Cluster, Name, UID string }
	}
	Status struct {
		IdentityHash string
		Phase        string
	}
}

// Add adds a version of an object, in the order of revisions. A deleted object has no value.
func (s *Shard) Add(key string, value []byte, deleted bool) error {
	resource, kind, cluster, name, ok := split(key)
	if !ok {
		return nil
	}
	if kind != customResources {
		s.bound(kind, resource, key, deleted)
	}
	at := Owner{cluster, name}
	if deleted {
		s.remove(resource, at)
		return nil
	}
	if strings.HasPrefix(string(value), encryptedPrefix) {
		s.Encrypted++
		return nil
	}
	switch resource {
	case resourceClusters, resourceShards, resourceWorkspaces, resourceExports, resourceMigrations:
	default:
		return nil
	}
	if err := s.decode(resource, at, value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// AddObject adds an object of a running shard, in JSON.
func (s *Shard) AddObject(resource schema.GroupResource, at Owner, value []byte) error {
	return s.decode(resource.Group+"/"+resource.Resource, at, value)
}

func (s *Shard) decode(resource string, at Owner, value []byte) error {
	var o object
	if err := json.Unmarshal(value, &o); err != nil {
		return err
	}
	s.put(resource, at, o)
	return nil
}

// bound counts an object that is stored under an identity.
func (s *Shard) bound(identity, resource, key string, deleted bool) {
	of := s.Identities[identity]
	if of == nil {
		of = &Identity{API: resource, objects: map[uint64]struct{}{}}
		s.Identities[identity] = of
	}
	if id := maphash.String(s.seed, key); deleted {
		delete(of.objects, id)
	} else {
		of.objects[id] = struct{}{}
	}
}

func (s *Shard) put(resource string, at Owner, o object) {
	deleting := o.Metadata.DeletionTimestamp != ""
	switch resource {
	case resourceClusters:
		s.Clusters[at.Cluster] = Cluster{
			Path:  o.Metadata.Annotations[kcpapi.AnnotationPath],
			Owner: Owner{o.Spec.Owner.Cluster, o.Spec.Owner.Name}, OwnerUID: o.Spec.Owner.UID, Deleting: deleting,
		}
	case resourceWorkspaces:
		s.Workspaces[at] = Workspace{
			UID: o.Metadata.UID, Cluster: o.Spec.Cluster, Scheduled: o.Metadata.Annotations[kcpapi.AnnotationScheduled],
			Deleting: deleting,
		}
	case resourceExports:
		if o.Status.IdentityHash != "" {
			s.Exports[at] = o.Status.IdentityHash
		}
	case resourceShards:
		s.Shards[at.Name] = true
	case resourceMigrations:
		s.Moves[at] = Move{o.Spec.LogicalCluster, o.Status.Phase}
	}
}

func (s *Shard) remove(resource string, at Owner) {
	switch resource {
	case resourceClusters:
		delete(s.Clusters, at.Cluster)
	case resourceWorkspaces:
		delete(s.Workspaces, at)
	case resourceExports:
		delete(s.Exports, at)
	case resourceShards:
		delete(s.Shards, at.Name)
	case resourceMigrations:
		delete(s.Moves, at)
	}
}

// LogicalClusters returns the number of logical clusters of users: shards have some for themselves.
func (s *Shard) LogicalClusters() (n int) {
	for id := range s.Clusters {
		if !strings.HasPrefix(id, systemPrefix) {
			n++
		}
	}
	return n
}
