package main

// defect is a mistake in the code that the model must find.
type defect struct {
	name string
	// file is the path in the repository. The old text, which it has once, is replaced.
	file, old, new string
	// rules are those that may find it, separated by commas, and calm leaves out everything but what users do, clusters that join, and time.
	rules string
	calm  bool
}

var defects = []defect{
	{
		name: "a move does not wait for the replacements", file: "internal/workload/schedule/step.go",
		old: "return s.Replicas - s.Available + spare", new: "return s.Replicas",
		rules: "stopped",
	},
	{
		name: "orphans have no hour", file: "internal/workload/syncer/orphan.go",
		old: "orphanGrace = time.Hour", new: "orphanGrace = 15 * time.Second",
		rules: "stopped",
	},
	{
		name: "a ConfigMap of running pods goes", file: "internal/workload/roots/scene.go",
		old: "runs := sc.runs(workload, cluster) && kind.TargetPath == nil", new: "runs := sc.present == nil && kind.TargetPath == nil",
		rules: "needed",
	},
	{
		name: "pods do not wait for what protects them", file: "internal/workload/roots/protect.go",
		old: "if len(fresh) == 0 || splitter", new: "if len(fresh) >= 0 || splitter",
		rules: "protected",
	},
	{
		name: "a controller that starts takes silence for a heartbeat", file: "internal/workload/heartbeat/judge.go",
		old: "s := &seen{uid: cl.UID, looked: now}", new: "s := &seen{uid: cl.UID, looked: now, at: now}",
		rules: "ready",
	},
	{
		name: "objects of administrators are taken over", file: "internal/workload/syncer/sync.go",
		old:   "case kinds.IsEverywhere(i.GroupResource(), desired.GetName()), live.GetLabels()[api.LabelSetup] == s.Setup:",
		new:   "case of == \"\":",
		rules: "administrator",
	},
	{
		name: "two workspaces have the same namespace in a cluster", file: "internal/workload/api/names.go",
		old:   "return withHash(namespace, maxName, setup, workspace, namespace)",
		new:   "return withHash(namespace, maxName, setup, namespace)",
		rules: "sum,isolation", calm: true,
	},
}
