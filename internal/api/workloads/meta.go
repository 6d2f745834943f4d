package workloads

// Labels.
const (
	// LabelCluster is the cluster of a leaf. kcp confines the syncer of a cluster to the objects with this label. It
	// never changes: to move a leaf, another one is created there and this one is deleted.
	LabelCluster = Group + "/cluster"
	// LabelSetup, LabelWorkspace and LabelNamespace are labels of namespaces in a physical cluster: the ID of the
	// setup, the logical cluster and the namespace that they stand for.
	LabelSetup     = Group + "/setup"
	LabelWorkspace = Group + "/workspace"
	LabelNamespace = Group + "/namespace"
)

// LabelManagedBy is the label of Kubernetes for the tool that manages an object. The controller sets it to
// ManagerController.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// Annotations of leaves.
const (
	// AnnotationName is the name of the root of a leaf, and of the object in the physical cluster.
	AnnotationName = Group + "/name"
	// AnnotationNeededBy has the roots that need a leaf of a dependency, such as a ConfigMap: a sorted list of
	// resource.group/name, separated by commas.
	AnnotationNeededBy = Group + "/needed-by"
	// AnnotationRootGeneration is the generation of the root that the spec of the leaf was made from.
	AnnotationRootGeneration = Group + "/root-generation"
	// AnnotationSpecHash is a hash of the content that the splitter has written to a leaf. It writes a leaf again only
	// if the hash changes.
	AnnotationSpecHash = Group + "/spec-hash"
)

// AnnotationScaled is "true" on leaves whose replicas an autoscaler sets in the cluster. Their spec.replicas are the
// replicas with which the cluster creates the object. Nothing corrects them there, unless they are zero.
const AnnotationScaled = Group + "/scaled"

// AnnotationSyncError is the annotation of leaves without a status that cannot be synced, with the reason.
const AnnotationSyncError = Group + "/sync-error"

// SecretTypeToken is the type of leaves of Secrets with a token for a ServiceAccount: kcp writes a token for kcp into
// Secrets of the type of Kubernetes, and no cluster may have it. In the cluster, the object has the type of Kubernetes.
const SecretTypeToken = Group + "/service-account-token"

// Annotations of roots.
const (
	// AnnotationMoves has how many replicas of a root moved in the minute from a time, as TIME=NUMBER. It is on the
	// root, because a move can end with the deletion of a leaf. Users can change it, so it is only read after a start.
	AnnotationMoves = Group + "/moves"
	// AnnotationRebalanced is the last request to rebalance that was carried out for a root. See
	// AnnotationRebalanceRequest.
	AnnotationRebalanced = Group + "/rebalanced"
	// AnnotationPlacement has the replicas of a root by cluster, as JSON. See Placement.
	AnnotationPlacement = Group + "/placement"
	// AnnotationExplain has the reasons of the last decision, as JSON, for kcpctl workloads explain.
	AnnotationExplain = Group + "/explain"
	// AnnotationScheduleError is why a root of a kind without conditions is not scheduled, as REASON: MESSAGE. See
	// ConditionScheduled.
	AnnotationScheduleError = Group + "/schedule-error"
)

// Annotations with which users influence scheduling, on the root or on its namespace. Annotations of the root take
// precedence.
const (
	// AnnotationClusterSelector is a label selector over clusters, such as region in (eu),tier!=test.
	AnnotationClusterSelector = Group + "/cluster-selector"
	// AnnotationSpread is Divide, Duplicate or Single. The default depends on the kind.
	AnnotationSpread = Group + "/spread"
	// AnnotationWeights are explicit weights, such as c1=2,c2=1. Clusters that are not listed get nothing.
	AnnotationWeights = Group + "/weights"
	// AnnotationAffinity is a label selector: only clusters with a leaf in the same namespace that matches.
	AnnotationAffinity = Group + "/affinity"
	// AnnotationAntiAffinity is a label selector: no cluster with a leaf in the same namespace that matches.
	AnnotationAntiAffinity = Group + "/anti-affinity"
	// AnnotationMaxClusters is the largest number of clusters.
	AnnotationMaxClusters = Group + "/max-clusters"
	// AnnotationFailover is Automatic, Never, or how long a cluster may be not ready before others run its share, too,
	// such as 5m. Default: Automatic for workloads of which more instances than requested do no harm, and Never for
	// workloads of which only one instance may run at a time.
	AnnotationFailover = Group + "/failover"
)

// AnnotationRebalanceRequest is an annotation of a root, or of the APIExport ExportWorkloads for all of them. A value
// that differs from AnnotationRebalanced requests to divide the replicas once again by the capacity of the clusters:
// kcpctl workloads rebalance.
const AnnotationRebalanceRequest = Group + "/rebalance-request"

// Failover is whether other clusters run the share of a cluster that is lost.
type Failover string

const (
	// FailoverAutomatic runs it on other clusters, too, after ClusterSpec.EvictAfter.
	FailoverAutomatic Failover = "Automatic"
	// FailoverNever waits for the cluster.
	FailoverNever Failover = "Never"
)

// FinalizerSyncer is the finalizer of leaves that may exist in the physical cluster. The syncer removes it when they
// are gone there.
const FinalizerSyncer = Group + "/syncer"

// FinalizerCluster is the finalizer of Clusters. The controller removes it when nothing is scheduled to the cluster any
// longer.
const FinalizerCluster = Group + "/cluster"

// Annotations of Clusters.
const (
	// AnnotationDrain, on a Cluster that is unschedulable, moves what is scheduled to it to other clusters: kcpctl
	// cluster drain.
	AnnotationDrain = Group + "/drain"
	// AnnotationForceRemoval, on a Cluster that is deleted, gives up the objects that are scheduled to it: they are not
	// deleted from the cluster.
	AnnotationForceRemoval = Group + "/force-removal"
	// AnnotationSetup is the ID of the setup in physical clusters. The controller writes it, so that all syncers use
	// the same one.
	AnnotationSetup = Group + "/setup-id"
	// AnnotationPhysicalUID is the UID of the physical cluster that kcpctl up has created the Cluster for: see
	// ClusterStatus.UID. No other cluster is used under the name, such as one whose syncer still runs after its Cluster
	// was removed.
	AnnotationPhysicalUID = Group + "/physical-uid"
	// AnnotationRemoveOrphans releases objects of the physical cluster that have no object in kcp. Its value is in the
	// message of the condition Ready with the reason Orphans, and stands for exactly these objects.
	AnnotationRemoveOrphans = Group + "/remove-orphans"
	// AnnotationAcceptSchema has values of status.apis[].accept, separated by commas: the published schemas become
	// narrower, so that this cluster can serve the APIs. A value stands for exactly the fields that the status lists
	// with it. The controller removes the annotation when it is fulfilled, or when the status has other values.
	AnnotationAcceptSchema = Group + "/accept-schema"
	// AnnotationWidenSchema has APIs, as RESOURCE.GROUP separated by commas, whose published schema becomes wider if
	// all clusters permit it. The controller removes it when it is fulfilled.
	AnnotationWidenSchema = Group + "/widen-schema"
)

// Field managers.
const (
	// ManagerSyncer is the field manager of the syncer in physical clusters, and of the status in kcp.
	ManagerSyncer = "kcpctl-syncer"
	// ManagerController is the field manager of the controller in kcp.
	ManagerController = "kcpctl-workloads"
)

// Conditions of a Cluster.
const (
	// ConditionReady is whether the cluster runs what is scheduled to it. It is False if any of the following two is.
	ConditionReady = "Ready"
	// ConditionHeartbeatHealthy is whether the syncer renews its Lease.
	ConditionHeartbeatHealthy = "HeartbeatHealthy"
	// ConditionReachable is whether the syncer reaches the API server of the cluster.
	ConditionReachable = "Reachable"
	// ConditionAPIsCompatible is whether the cluster serves all published APIs. Other APIs of the cluster can be used
	// if it does not.
	ConditionAPIsCompatible = "APIsCompatible"
	// ConditionSchedulable is whether new objects are scheduled to the cluster.
	ConditionSchedulable = "Schedulable"
	// ConditionEvicted is whether other clusters run the share of the cluster, too, because it has been not ready for
	// longer than evictAfter. Objects that are scheduled to the cluster are kept: its syncer continues when it is
	// ready.
	ConditionEvicted = "Evicted"
)

// Conditions of leaves and roots. kinds without status.conditions have events only.
const (
	// ConditionSynced is whether the physical cluster has the last spec of a leaf. On roots, whether it is so for all
	// leaves.
	ConditionSynced = "Synced"
	// ConditionScheduled is whether a root has enough clusters, and all objects that it needs exist.
	ConditionScheduled = "Scheduled"
)

// Reasons of conditions.
const (
	ReasonReady              = "Ready"
	ReasonHeartbeatMissed    = "HeartbeatMissed"
	ReasonSyncerNotRunning   = "SyncerNotRunning" // no heartbeat ever
	ReasonUnauthorized       = "Unauthorized"
	ReasonUnreachable        = "Unreachable"
	ReasonKubeconfigInvalid  = "KubeconfigInvalid"
	ReasonDuplicateCluster   = "DuplicateCluster" // another Cluster is the same physical cluster
	ReasonSchemaIncompatible = "SchemaIncompatible"
	ReasonSchemasUnreadable  = "SchemasUnreadable" // what the syncer reports about the APIs of its cluster
	ReasonPublicationRefused = "PublicationRefused"
	ReasonCompatible         = "Compatible"
	ReasonCordoned           = "Cordoned"
	ReasonDraining           = "Draining"
	ReasonDrained            = "Drained"
	ReasonRemoving           = "Removing"
	ReasonOrphans            = "Orphans"         // objects without an object in kcp
	ReasonClusterReplaced    = "ClusterReplaced" // another physical cluster than ClusterStatus.UID
	ReasonOtherSetup         = "OtherSetup"      // the cluster has objects of these workspaces under another ID of the setup

	// Reasons of ConditionEvicted.
	ReasonEvicted            = "Evicted"
	ReasonEvictAfter         = "EvictAfter"         // not yet
	ReasonNeverEvicted       = "NeverEvicted"       // evictAfter is 0s
	ReasonCredentialsRefused = "CredentialsRefused" // the cluster can run what it has
	ReasonFullDisruption     = "FullDisruption"     // no cluster is ready, or more than half of them went away at once

	ReasonSynced               = "Synced"
	ReasonNamespaceCollision   = "NamespaceCollision"
	ReasonNamespaceTerminating = "NamespaceTerminating"
	ReasonQuotaExceeded        = "QuotaExceeded"
	ReasonDenied               = "Denied"  // by admission of the physical cluster
	ReasonInvalid              = "Invalid" // refused by validation of the physical cluster

	ReasonScheduled         = "Scheduled"
	ReasonNoCluster         = "NoCluster"
	ReasonClusterGone       = "ClusterGone" // a cluster that cannot be replaced has no Cluster any longer
	ReasonNotNeeded         = "NotNeeded"   // no workload needs the object
	ReasonInvalidHint       = "InvalidHint"
	ReasonDependencyMissing = "DependencyMissing"
	ReasonNameCollision     = "NameCollision"  // an object of the user has the name of a leaf
	ReasonSpreadNotSet      = "SpreadNotSet"   // the kind is not in the table of kinds, and the object has no annotation
	ReasonLeafRefused       = "LeafRefused"    // kcp refuses a leaf, such as because of its size or of a quota
	ReasonUnprotected       = "Unprotected"    // the cluster refuses what protects the pods
	ReasonContendedField    = "ContendedField" // another client of the physical cluster changes the object repeatedly
	ReasonRetrying          = "Retrying"       // the physical cluster fails to answer
	ReasonNotAllowed        = "NotAllowed"     // by the tenancy of the Cluster
)

// ClusterPlacement is the share of a cluster in a root, in the annotation AnnotationPlacement:
// {"c1":{"replicas":2,"ready":2}}.
type ClusterPlacement struct {
	// Replicas is nil for kinds without replicas.
	Replicas *int64 `json:"replicas,omitempty"`
	Ready    *int64 `json:"ready,omitempty"`
}

// Placement has the share of each cluster in a root.
type Placement map[string]ClusterPlacement
