package main

// The steps of models in which only some things happen.
const (
	// calm are those in which nothing goes wrong.
	calm = "create a Deployment,scale,roll out,delete a workload,create a Service,add a cluster,add a node," +
		"restart the controller,time passes,everything heals"
	// narrowed are those of an API that becomes incompatible.
	narrowed = "create a Deployment,delete a workload,narrow a schema,time passes"
	// restored are those of a backup of kcp that is restored, and in which objects of users are missing.
	restored = "create a Deployment,create a StatefulSet,back up kcp,restore kcp,time passes"
	// renamed are those of a cluster that is registered again, often under another name.
	renamed = "create a Deployment,remove a cluster by force and register it,time passes,everything heals"
	// remade are those of a compute workspace that is made again.
	remade = "create a Deployment,make the compute workspace again,time passes,everything heals"
)

// ofWorkloads are mistakes in the controller and the syncers.
var ofWorkloads = []defect{
	{
		name: "a move does not wait for the replacements", file: "internal/workload/placement/schedule/step.go",
		old: "return s.Replicas - s.Available + spare", new: "return s.Replicas",
		rules: "stopped",
	},
	{
		name: "orphans go without a release", file: "internal/workload/sync/syncer/orphan.go",
		old: "if len(found) > 0 && release == tokenOf(found) {", new: "if len(found) > 0 {",
		rules: "stopped,data", steps: restored,
	},
	{
		name: "a ConfigMap of running pods goes", file: "internal/workload/placement/roots/scene.go",
		old: "runs := sc.runs(workload, cluster) && kind.TargetPath == nil", new: "runs := sc.present == nil && kind.TargetPath == nil",
		rules: "needed",
	},
	{
		name: "pods do not wait for what protects them", file: "internal/workload/placement/roots/protect.go",
		old: "if !first || splitter", new: "if first || splitter",
		rules: "protected",
	},
	{
		name: "a controller that starts takes silence for a heartbeat", file: "internal/workload/sync/heartbeat/judge.go",
		old: "s := &seen{uid: cl.UID, looked: now}", new: "s := &seen{uid: cl.UID, looked: now, at: now}",
		rules: "ready",
	},
	{
		name: "objects of administrators are taken over", file: "internal/workload/sync/syncer/sync.go",
		old:   "case kinds.IsEverywhere(i.GroupResource(), desired.GetName()), live.GetLabels()[api.LabelSetup] == s.Setup:",
		new:   "case of == \"\":",
		rules: "administrator",
	},
	{
		name: "two workspaces have the same namespace in a cluster", file: "internal/api/workloads/names.go",
		old:   "return withHash(namespace, maxName, setup, workspace, namespace)",
		new:   "return withHash(namespace, maxName, setup, namespace)",
		rules: "sum,isolation", steps: calm,
	},
	{
		name: "what an evicted cluster has is deleted", file: "internal/workload/placement/schedule/schedule.go",
		old: "if a.clusters[name].lost {", new: "if a.clusters[name] == nil {",
		rules: "stopped",
	},
	{
		name: "replicas follow the free capacity", file: "internal/workload/placement/schedule/divide.go",
		old: "again := a.workload.Rebalance ||", new: "again := a.byRoom ||",
		rules: "moved", steps: calm,
	},
	{
		name: "a workload starts elsewhere before it has ended", file: "internal/workload/placement/schedule/whole.go",
		old: "case !elsewhere:", new: "default:",
		rules: "twice",
	},
	{
		name: "a NetworkPolicy is on one cluster", file: "internal/api/kinds/table.go",
		old:   "GroupKind: kind(networking, \"NetworkPolicy\"), Resource: \"networkpolicies\", Spread: Follow,",
		new:   "GroupKind: kind(networking, \"NetworkPolicy\"), Resource: \"networkpolicies\", Spread: Single,",
		rules: "protected,sum",
	},
	{
		name: "a cluster under another name does not know its objects", file: "internal/workload/sync/syncer/sync.go",
		old: "was.Name == api.LeafName(live.GetName(), name)", new: "was.Name == is.Name",
		rules: "sum", steps: renamed,
	},
	{
		name: "namespaces keep the level of another name of their cluster", file: "internal/workload/sync/syncer/podsecurity.go",
		old:   "if ns.GetLabels()[key] == value ||",
		new:   "if ns.GetLabels()[api.LabelCluster] != s.Cluster || ns.GetLabels()[key] == value ||",
		rules: "sum",
	},
	{
		name: "what is deleted runs on when its API is not synced", file: "internal/workload/sync/syncer/sync.go",
		old:   "case leaf.GetDeletionTimestamp() != nil:",
		new:   "case leaf.GetDeletionTimestamp() != nil && slices.Contains(s.synced(), i.GroupVersionResource):",
		rules: "deleted", steps: narrowed,
	},
	{
		name: "a cluster that joins gets what runs elsewhere", file: "internal/workload/placement/schedule/divide.go",
		old: "if sum <= a.workload.Replicas {", new: "if sum <= a.workload.Replicas && len(a.previous) == len(within) {",
		rules: "moved", steps: calm,
	},
	{
		name: "everything runs twice when the compute workspace is made again", file: "internal/workload/sync/syncer/identity.go",
		old: "if s.otherSetup != \"\" {", new: "if s.otherSetup == \"-\" {",
		rules: "twice,sum", steps: remade,
	},
}
