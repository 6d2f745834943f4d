package workloads_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

var (
	workspaceNames = []string{"1a", "2b"}
	namespaceNames = []string{"shop", "lab"}
	appNames       = []string{"web", "db", "job"}
)

var userSteps = []step{
	{12, "create a Deployment", (*game).createDeployment},
	{6, "scale", (*game).scale},
	{6, "roll out", (*game).rollOut},
	{4, "delete a workload", (*game).deleteWorkload},
	{2, "change spread", (*game).changeSpread},
	{3, "create a NetworkPolicy", (*game).createPolicy},
	{2, "create a Service", (*game).createService},
	{2, "create a StatefulSet", (*game).createStatefulSet},
	{1, "delete what protects", (*game).deleteProtection},
	{1, "delete a ConfigMap that nothing names", (*game).deleteConfig},
	{1, "delete a volume", (*game).deleteVolume},
}

// place draws a namespace of a workspace.
func (g *game) place() (ws, ns string) {
	return g.draw("workspace", workspaceNames...), g.draw("namespace", namespaceNames...)
}

// put creates or changes an object of a user. reason is why pods of it may stop. Empty: they may not.
func (g *game) put(ws, path, ns, name, kind string, body map[string]any) {
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		body["metadata"] = metadata
	}
	metadata["labels"] = map[string]any{"owner": ws + "." + ns + "." + name}
	body["kind"], body["apiVersion"] = kind, versionOf(path)
	k := id(ws, path, ns, name)
	g.mu.Lock()
	g.touched[k] = "put"
	delete(g.deleted, k)
	delete(g.vanished, k)
	g.mu.Unlock()
	g.kcp.Merge(ws, path, ns, name, body)
}

// remove deletes an object of a user.
func (g *game) remove(k string) {
	g.logf("delete %s", k)
	ws, path, ns, name := split(k)
	g.mu.Lock()
	g.deleted[k] = time.Now()
	delete(g.touched, k)
	g.mu.Unlock()
	g.kcp.Delete(ws, path, ns, name)
}

func versionOf(path string) string {
	parts := strings.Split(path, "/")
	return strings.Join(parts[1:len(parts)-1], "/")
}

// roots returns the ids of the objects of users of some resources.
func (g *game) roots(paths ...string) (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rootsLocked(paths...)
}

func (w *world) rootsLocked(paths ...string) (out []string) {
	for _, k := range sortedKeys(w.objects) {
		if _, path, _, _ := split(k); slices.Contains(paths, path) && isRoot(w.objects[k]) && !deleting(w.objects[k]) && slices.Contains(workspaceNames, k[:2]) {
			out = append(out, k)
		}
	}
	return out
}

// template returns a pod template.
func template(app, rev, config, claim string) map[string]any {
	container := map[string]any{"name": "c", "image": "i", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}}}
	spec := map[string]any{"containers": []any{container}}
	if config != "" {
		container["envFrom"] = []any{map[string]any{"configMapRef": map[string]any{"name": config}}}
	}
	if claim != "" {
		spec["volumes"] = []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": claim}}}
	}
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": app, "rev": rev}}, "spec": spec}
}

// config makes a ConfigMap with a name that is not used yet, as kustomize does, and returns it.
func (g *game) config(ws, ns, app string) string {
	g.mu.Lock()
	g.revisions++
	name := fmt.Sprint(app, "-files-", g.revisions)
	g.mu.Unlock()
	g.put(ws, configMaps, ns, name, "ConfigMap", object(`{data: {k: v}}`))
	return name
}

func (g *game) revision() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revisions++
	return fmt.Sprint("r", g.revisions)
}

func (g *game) createDeployment() {
	ws, ns := g.place()
	app := g.draw("name", appNames...)
	if slices.Contains(g.roots(deployments), id(ws, deployments, ns, app)) {
		return
	}
	replicas := rapid.IntRange(1, 6).Draw(g.t, "replicas")
	config, claim, annotations := "", "", map[string]any{}
	strategy := "RollingUpdate"
	switch g.draw("kind", "plain", "plain", "config", "config", "Recreate", "Single", "Duplicate", "volume", "Never") {
	case "config":
		config = g.config(ws, ns, app)
	case "Recreate":
		strategy = "Recreate"
	case "Single":
		annotations[api.AnnotationSpread] = "Single"
	case "Duplicate":
		annotations[api.AnnotationSpread] = "Duplicate"
		replicas = min(replicas, 2)
	case "volume":
		claim = app + "-data"
		g.put(ws, claims, ns, claim, "PersistentVolumeClaim", object(`{spec: {accessModes: [ReadWriteOnce]}}`))
	case "Never":
		annotations[api.AnnotationFailover] = "Never"
	}
	g.logf("create Deployment %s %s/%s: %d replicas, %s %s%s%s", ws, ns, app, replicas, strategy, config, claim, encoded(annotations))
	g.put(ws, deployments, ns, app, "Deployment", map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{
		"replicas": float64(replicas), "strategy": map[string]any{"type": strategy}, "selector": map[string]any{"matchLabels": map[string]any{"app": app}},
		"template": template(app, g.revision(), config, claim),
	}})
}

func (g *game) createStatefulSet() {
	ws, ns := g.place()
	app := g.draw("name", appNames...) + "-set"
	k := id(ws, statefulSets, ns, app)
	if slices.Contains(g.roots(statefulSets), k) {
		return
	}
	g.logf("create StatefulSet %s", k)
	g.put(ws, statefulSets, ns, app, "StatefulSet", map[string]any{"spec": map[string]any{
		"replicas": float64(rapid.IntRange(1, 3).Draw(g.t, "replicas")), "selector": map[string]any{"matchLabels": map[string]any{"app": app}},
		"template": template(app, g.revision(), "", ""), "volumeClaimTemplates": []any{object(`{metadata: {name: data}}`)},
	}})
}

func (g *game) scale() {
	k, ok := pick(g, "workload", g.roots(deployments))
	if !ok {
		return
	}
	n := rapid.IntRange(0, 8).Draw(g.t, "replicas")
	g.logf("scale %s to %d", k, n)
	ws, path, ns, name := split(k)
	g.mu.Lock()
	if before := g.wanted(k, g.objects[k]); before < n {
		g.fewer[k] = asked{before, time.Now()}
	}
	g.mu.Unlock()
	g.put(ws, path, ns, name, "Deployment", object(`{spec: {replicas: %d}}`, n))
}

// rollOut changes the template, often together with a ConfigMap of another name.
func (g *game) rollOut() {
	k, ok := pick(g, "workload", g.roots(deployments))
	if !ok {
		return
	}
	ws, path, ns, name := split(k)
	g.mu.Lock()
	claim := ""
	for _, n := range needsOf(g.objects[k]) {
		if n.path == claims {
			claim = n.name
		}
	}
	g.mu.Unlock()
	config := ""
	if claim == "" && !g.chance("without", 3) {
		config = g.config(ws, ns, name)
	}
	g.logf("roll out %s with %s", k, config)
	g.put(ws, path, ns, name, "Deployment", map[string]any{"spec": map[string]any{"template": template(name, g.revision(), config, claim)}})
}

func (g *game) deleteWorkload() {
	if k, ok := pick(g, "workload", g.roots(deployments, statefulSets)); ok {
		g.remove(k)
	}
}

func (g *game) changeSpread() {
	k, ok := pick(g, "workload", g.roots(deployments))
	if !ok {
		return
	}
	spread := g.draw("spread", "Divide", "Single", "Duplicate")
	g.logf("spread of %s: %s", k, spread)
	g.mu.Lock()
	g.excused[k] = "spread"
	g.mu.Unlock()
	ws, path, ns, name := split(k)
	g.put(ws, path, ns, name, "Deployment", object(`{metadata: {annotations: {%s: %s}}}`, api.AnnotationSpread, spread))
}

func (g *game) createPolicy() {
	ws, ns := g.place()
	g.logf("create NetworkPolicy %s %s/deny-all", ws, ns)
	g.put(ws, policies, ns, "deny-all", "NetworkPolicy", object(`{spec: {podSelector: {}, policyTypes: [Ingress]}}`))
}

func (g *game) createService() {
	ws, ns := g.place()
	app := g.draw("name", appNames...)
	g.logf("create Service %s %s/%s", ws, ns, app)
	g.put(ws, services, ns, app, "Service", object(`{spec: {selector: {app: %s}, ports: [{port: 80}]}}`, app))
}

func (g *game) deleteProtection() {
	if k, ok := pick(g, "object", g.roots(policies, services)); ok {
		g.remove(k)
	}
}

func (g *game) deleteConfig() {
	if k, ok := pick(g, "ConfigMap", g.unnamed(configMaps)); ok {
		g.remove(k)
	}
}

func (g *game) deleteVolume() {
	if k, ok := pick(g, "volume", g.unnamed(claims)); ok {
		g.remove(k)
	}
}

// unnamed returns the objects that no workload names.
func (g *game) unnamed(path string) []string {
	all := g.roots(path)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(all, func(k string) bool {
		_, _, _, name := split(k)
		for _, of := range g.rootsLocked(deployments) {
			if sameNamespace(of, k) && slices.Contains(needsOf(g.objects[of]), need{path, name}) {
				return true
			}
		}
		return false
	})
}
