package fakekcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// contents are the objects in the workspaces of a kcp, by workspace, resource and name: root:team/apibindings/widgets.
type contents struct {
	objects map[string]*unstructured.Unstructured
	// phases are those of new workspaces, by path. Others are Ready.
	phases map[string]string
	writes []string
	count  int
}

// ServeObjects lets the kcp keep objects in workspaces, as server-side apply writes them: workspaces are placed on the
// first shard that their selector matches and become Ready, and APIBindings become Bound. Applying leaves fields alone
// that are no longer applied.
func (k *Kcp) ServeObjects() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.contents = &contents{objects: map[string]*unstructured.Unstructured{}, phases: map[string]string{}}
}

// Phase sets the phase of a workspace that is created later.
func (k *Kcp) Phase(path, phase string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.contents.phases[path] = phase
}

// PutIn stores an object in a workspace, as a user may. It is named root:team/apibindings/widgets. Nil removes it.
func (k *Kcp) PutIn(name string, o *unstructured.Unstructured) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o == nil {
		delete(k.contents.objects, name)
		return
	}
	k.contents.store(name, o.DeepCopy())
}

// In returns an object in a workspace, such as root:team/apibindings/widgets, or nil.
func (k *Kcp) In(name string) *unstructured.Unstructured {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.contents.objects[name].DeepCopy()
}

// Contents returns the names of all objects in workspaces.
func (k *Kcp) Contents() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.contents.objects))
}

// Writes returns the writes of objects in workspaces since the last call, without dry runs: apply root/workspaces/team.
func (k *Kcp) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.contents.writes
	k.contents.writes = nil
	return out
}

func (c *contents) store(name string, o *unstructured.Unstructured) {
	c.count++
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", c.count)))
	}
	o.SetResourceVersion(fmt.Sprint(c.count))
	c.objects[name] = o
}

// contained handles a request for an object in a workspace.
func (k *Kcp) contained(r *http.Request) (Answer, bool) {
	parts := strings.Split(r.URL.Path, "/") // "", clusters, root:team, apis, group, version, resource, name
	if k.contents == nil || len(parts) != 8 || parts[1] != "clusters" || parts[6] == "shards" || k.workspaces[parts[7]] != nil {
		return Answer{}, false
	}
	if parts[6] == "apiexports" && strings.HasSuffix(parts[7], ".kcp.io") {
		return Answer{}, false // kcp's own
	}
	if _, canary, _ := strings.Cut(parts[2], ":"); k.workspaces[canary] != nil {
		return Answer{}, false
	}
	c, path, name := k.contents, parts[2], strings.Join([]string{parts[2], parts[6], parts[7]}, "/")
	if !c.serves(path) {
		return Refuse(http.StatusForbidden, "Forbidden", "access to workspace "+path+" denied"), true
	}
	switch {
	case parts[6] == "logicalclusters":
		return Answer{http.StatusOK, map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster"}}, true
	case r.Method == http.MethodPatch:
		return c.apply(k, name, r), true
	case c.objects[name] == nil:
		return Refuse(http.StatusNotFound, "NotFound", name+" not found"), true
	case r.Method == http.MethodDelete:
		return c.remove(k, name, r), true
	}
	return object(http.StatusOK, c.objects[name].DeepCopy()), true
}

// serves reports whether a workspace exists and is Ready.
func (c *contents) serves(path string) bool {
	i := strings.LastIndex(path, ":")
	if i < 0 {
		return true
	}
	ws := c.objects[path[:i]+"/workspaces/"+path[i+1:]]
	if ws == nil || !c.serves(path[:i]) {
		return false
	}
	phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
	return phase == "Ready"
}

func (c *contents) apply(k *Kcp, name string, r *http.Request) Answer {
	applied := map[string]any{}
	raw, err := io.ReadAll(r.Body)
	if err = errors.Join(err, yaml.Unmarshal(raw, &applied)); err != nil {
		k.t.Errorf("fakekcp: body of %s %s: %v", r.Method, r.URL, err)
	}
	live := c.objects[name]
	merged := map[string]any{}
	if live != nil {
		merged = live.DeepCopy().Object
	}
	o := &unstructured.Unstructured{Object: merge(merged, applied)}
	if live == nil {
		k.begin(name, o)
	}
	if r.URL.Query().Has("dryRun") {
		return object(http.StatusOK, o)
	}
	c.writes = append(c.writes, "apply "+name)
	c.store(name, o)
	return object(http.StatusOK, o)
}

// begin gives a new object the state that controllers would.
func (k *Kcp) begin(name string, o *unstructured.Unstructured) {
	parts := strings.Split(name, "/")
	switch parts[1] {
	case "workspaces":
		selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "location", "selector", "matchLabels")
		phase := k.contents.phases[parts[0]+":"+parts[2]]
		if phase == "" {
			phase = "Ready"
		}
		o.Object["status"] = map[string]any{"phase": phase}
		for _, s := range k.shards {
			has := labels.Set{"name": s.Name}
			maps.Copy(has, s.Labels)
			if labels.SelectorFromSet(selector).Matches(has) {
				notes := o.GetAnnotations()
				notes["core.kcp.io/shard"] = s.Name
				o.SetAnnotations(notes)
				break
			}
		}
	case "apibindings":
		o.Object["status"] = map[string]any{"phase": "Bound"}
	}
}

func (c *contents) remove(k *Kcp, name string, r *http.Request) Answer {
	var options struct {
		Preconditions struct{ UID, ResourceVersion string }
	}
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		k.t.Errorf("fakekcp: body of %s %s: %v", r.Method, r.URL, err)
	}
	o := c.objects[name]
	if p := options.Preconditions; p.UID != string(o.GetUID()) || p.ResourceVersion != o.GetResourceVersion() {
		return Refuse(http.StatusConflict, "Conflict", "the precondition does not hold")
	}
	c.writes = append(c.writes, "delete "+name)
	delete(c.objects, name)
	parts := strings.Split(name, "/")
	path := parts[0] + ":" + parts[2]
	maps.DeleteFunc(c.objects, func(other string, _ *unstructured.Unstructured) bool {
		return parts[1] == "workspaces" && (strings.HasPrefix(other, path+"/") || strings.HasPrefix(other, path+":"))
	})
	return Answer{http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}}
}

// merge lays a JSON object over another one.
func merge(into, from map[string]any) map[string]any {
	for key, value := range from {
		have, ok := into[key].(map[string]any)
		if m, isMap := value.(map[string]any); ok && isMap {
			value = merge(have, m)
		}
		into[key] = value
	}
	return into
}
