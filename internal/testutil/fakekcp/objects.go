package fakekcp

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// contents are the objects in the workspaces of a kcp. Their versions of an API are one.
type contents struct {
	*fakeapi.Server
	// phases are those of new workspaces, by path. Others are Ready.
	phases map[string]string
	writes []string
}

// ServeObjects lets the kcp keep objects in workspaces: workspaces are placed on the first shard that their selector
// matches and become Ready, and APIBindings become Bound.
func (k *Kcp) ServeObjects() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.contents = &contents{Server: fakeapi.NewMemory("contents"), phases: map[string]string{}}
	k.contents.Guard("uid", "resourceVersion")
	k.contents.Complete(k.begin)
}

// Phase sets the phase of a workspace that is created later.
func (k *Kcp) Phase(path, phase string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.contents.phases[path] = phase
}

// resourcePath is the path of a resource in a fakeapi.Server that does not distinguish its versions.
const resourcePath = "api/v1/"

// split splits the name of an object, root:team/apibindings/widgets.
func split(name string) (cluster, path, object string) {
	parts := strings.Split(name, "/")
	return parts[0], resourcePath + parts[1], parts[2]
}

// PutIn stores an object in a workspace, as a user may. It is named root:team/apibindings/widgets. Nil removes it,
// with its finalizers.
func (k *Kcp) PutIn(name string, o *unstructured.Unstructured) {
	cluster, path, at := split(name)
	if o == nil {
		k.contents.Erase(cluster, path, "", at)
		return
	}
	o = o.DeepCopy()
	o.SetName(at)
	k.contents.Put(cluster, path, o)
}

// In returns an object in a workspace, such as root:team/apibindings/widgets, or nil.
func (k *Kcp) In(name string) *unstructured.Unstructured {
	cluster, path, at := split(name)
	return k.contents.Get(cluster, path, "", at)
}

// Contents returns the names of all objects in workspaces.
func (k *Kcp) Contents() []string {
	out := []string{}
	k.contents.All(func(cluster, path, _, name string) {
		out = append(out, cluster+"/"+strings.TrimPrefix(path, resourcePath)+"/"+name)
	})
	slices.Sort(out)
	return out
}

// Writes returns the writes of objects in workspaces since the last call, without dry runs: apply root/workspaces/team.
func (k *Kcp) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.contents.writes
	k.contents.writes = nil
	return out
}

// contained handles a request for an object in a workspace.
func (k *Kcp) contained(r *http.Request) (Answer, bool) {
	parts := strings.Split(r.URL.Path, "/") // "", clusters, root:team, apis, group, version, resource, name
	if k.contents == nil || len(parts) != 8 || parts[1] != "clusters" || parts[6] == "shards" || k.Workspace(parts[7]) != nil {
		return Answer{}, false
	}
	if parts[6] == "apiexports" && strings.HasSuffix(parts[7], ".kcp.io") {
		return Answer{}, false // kcp's own
	}
	if _, canary, _ := strings.Cut(parts[2], ":"); k.Workspace(canary) != nil {
		return Answer{}, false
	}
	path, name := parts[2], strings.Join([]string{parts[2], parts[6], parts[7]}, "/")
	switch {
	case !k.serves(path):
		return Refuse(http.StatusForbidden, "Forbidden", "access to workspace "+path+" denied"), true
	case parts[6] == "logicalclusters":
		return Answer{http.StatusOK, map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster"}}, true
	}
	a := stored(k.contents.Server, r)
	if a.Code >= 300 || r.Method == http.MethodGet || r.URL.Query().Has("dryRun") {
		return a, true
	}
	k.contents.writes = append(k.contents.writes, map[string]string{"DELETE": "delete ", "PATCH": "apply "}[r.Method]+name)
	if r.Method == http.MethodDelete && parts[6] == "workspaces" {
		path += ":" + parts[7]
		for _, other := range k.Contents() {
			if strings.HasPrefix(other, path+"/") || strings.HasPrefix(other, path+":") {
				k.PutIn(other, nil)
			}
		}
	}
	return a, true
}

// stored is the answer of a server to a request for a resource.
func stored(s *fakeapi.Server, r *http.Request) Answer {
	_, path, _ := strings.Cut(r.URL.Path, "/clusters/")
	parts := strings.Split(path, "/") // root:team, apis, group, version, resource, name
	api := map[string]int{"apis": 4, "api": 3}[parts[1]]
	r = r.Clone(r.Context())
	r.URL.Path = "/clusters/" + parts[0] + "/" + resourcePath + strings.Join(parts[api:], "/")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return Answer{w.Code, json.RawMessage(w.Body.Bytes())}
}

// serves reports whether a workspace exists and is Ready.
func (k *Kcp) serves(path string) bool {
	i := strings.LastIndex(path, ":")
	if i < 0 {
		return true
	}
	ws := k.In(path[:i] + "/workspaces/" + path[i+1:])
	if ws == nil || !k.serves(path[:i]) {
		return false
	}
	phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
	return phase == "Ready"
}

// begin gives a new object the state that controllers would.
func (k *Kcp) begin(cluster, path string, o *unstructured.Unstructured) {
	switch strings.TrimPrefix(path, resourcePath) {
	case "workspaces":
		selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "location", "selector", "matchLabels")
		o.Object["status"] = map[string]any{"phase": cmp.Or(k.contents.phases[cluster+":"+o.GetName()], "Ready")}
		for _, s := range k.api.Objects(shards) {
			has := labels.Set{"name": s.GetName()}
			maps.Copy(has, s.GetLabels())
			if labels.SelectorFromSet(selector).Matches(has) {
				notes := o.GetAnnotations()
				notes["core.kcp.io/shard"] = s.GetName()
				o.SetAnnotations(notes)
				break
			}
		}
	case "apibindings":
		o.Object["status"] = map[string]any{"phase": "Bound"}
	}
}
