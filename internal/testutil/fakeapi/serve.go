package fakeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// User is the user of all requests.
const User = "test-user"

// anyCluster is the path element for all logical clusters.
const anyCluster = "*"

// request is what a request is about. An empty name or namespace is all of them.
type request struct {
	key
	subresource string
	labels      labels.Selector
	fields      fields.Selector
	// export is the APIExport whose virtual workspace is requested, and sees reports whether it has an object. Nil: it
	// has all.
	export string
	sees   func(key, *unstructured.Unstructured) bool
}

// parse reads the path of a request: [/anything][/clusters/<cluster>]/api/v1/... or .../apis/<group>/<version>/...
func parse(r *http.Request) (out request, ok bool) {
	path := r.URL.Path
	if before, after, found := strings.Cut(path, "/clusters/"); found {
		out.export = exportOf(before)
		cluster, rest, _ := strings.Cut(after, "/")
		out.cluster, path = cluster, "/"+rest
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if group == 0 || len(parts) <= group {
		return out, false
	}
	prefix, rest := strings.Join(parts[:group], "/"), parts[group:]
	if rest[0] == "namespaces" && len(rest) > 2 && rest[2] != "status" {
		out.namespace, rest = rest[1], rest[2:]
	}
	out.path = prefix + "/" + rest[0]
	if len(rest) > 1 {
		out.name = rest[1]
	}
	if len(rest) > 2 {
		out.subresource = rest[2]
	}
	var err error
	if out.labels, err = labels.Parse(r.URL.Query().Get("labelSelector")); err != nil {
		return out, false
	}
	out.fields, err = fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	return out, err == nil
}

// matches reports whether a request selects an object.
func (r request) matches(k key, o *unstructured.Unstructured) bool {
	return (r.cluster == anyCluster || r.cluster == k.cluster) && r.path == k.path && (r.namespace == "" || r.namespace == k.namespace) &&
		r.labels.Matches(labels.Set(o.GetLabels())) && r.fields.Matches(fieldsOf(k, o)) && (r.sees == nil || r.sees(k, o))
}

// fieldsOf returns what field selectors select by.
func fieldsOf(k key, o *unstructured.Unstructured) fields.Set {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	eventType, _, _ := unstructured.NestedString(o.Object, "type")
	return fields.Set{"metadata.name": k.name, "status.phase": phase, "type": eventType}
}

// exportOf returns the APIExport in the path of a virtual workspace, /services/apiexport/<cluster>/<name>, or nothing.
func exportOf(path string) string {
	_, rest, _ := strings.Cut(path, "/services/apiexport/")
	_, name, _ := strings.Cut(rest, "/")
	return name
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse, document := s.refuse, s.documents[r.URL.RequestURI()]
	s.mu.Unlock()
	if refuse != nil {
		if code, message := refuse(r); code != 0 {
			fail(w, code, message)
			return
		}
	}
	if r.URL.Path == "/readyz" {
		_, _ = io.WriteString(w, "ok")
		return
	}
	at, ok := parse(r)
	s.memory.resolve(&at)
	switch {
	case r.Method == http.MethodPost && at.path == "apis/authentication.k8s.io/v1/selfsubjectreviews":
		answer(w, http.StatusCreated, map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": User}},
		})
	case document != "" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, document)
	case !ok:
		fail(w, http.StatusNotFound, "the server could not find the requested resource")
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, at)
	case r.Method == http.MethodGet && at.name == "":
		s.mu.Lock()
		items, next := s.memory.page(r, s.list(at))
		body := map[string]any{
			"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version), "continue": next}, "items": items,
		}
		s.mu.Unlock()
		if OnlyMetadata(r) {
			body["apiVersion"], body["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
			for i, o := range body["items"].([]any) {
				body["items"].([]any)[i] = partial(o.(map[string]any))
			}
		}
		answer(w, http.StatusOK, body)
	default:
		s.one(w, r, at)
	}
}

// OnlyMetadata reports whether a request reads the metadata of objects only.
func OnlyMetadata(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// partial returns the metadata of an object.
func partial(o map[string]any) map[string]any {
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]}
}

// one answers a request for one object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, at request) {
	body := map[string]any{}
	raw, err := io.ReadAll(r.Body)
	if err == nil && len(raw) > 0 {
		err = decode(raw, &body)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if code, message := s.deny(r, at, body); code != 0 {
		fail(w, code, message)
		return
	}
	sent := unstructured.Unstructured{Object: body}
	if r.Method == http.MethodPost {
		at.name = sent.GetName()
	}
	live := s.objects[at.key]
	apply := r.Header.Get("Content-Type") == "application/apply-patch+yaml"
	switch {
	case r.Method == http.MethodPost && live != nil:
		fail(w, http.StatusConflict, "already exists")
		return
	case r.Method == http.MethodDelete && at.name == "":
		for _, k := range s.selected(at) {
			s.remove(k)
		}
		answer(w, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
		return
	case r.Method != http.MethodPost && live == nil && !apply:
		fail(w, http.StatusNotFound, at.path+" "+at.name+" not found")
		return
	case r.Method != http.MethodPost && live == nil && sent.GetUID() != "":
		// As kubernetes does: apiserver/pkg/endpoints/handlers/patch.go.
		fail(w, http.StatusConflict, "uid mismatch: no existing object was found")
		return
	case r.Method == http.MethodGet:
		if OnlyMetadata(r) {
			answer(w, http.StatusOK, partial(live.Object))
			return
		}
		answer(w, http.StatusOK, live.Object)
		return
	case r.Method != http.MethodDelete && live != nil && sent.GetResourceVersion() != "" && sent.GetResourceVersion() != live.GetResourceVersion():
		fail(w, http.StatusConflict, "the object has been modified")
		return
	case r.Method == http.MethodDelete && !s.memory.meets(body, live):
		fail(w, http.StatusConflict, "the precondition does not match the UID or the resource version in record")
		return
	case r.Method != http.MethodDelete && live != nil && at.subresource == "" && sent.GetUID() != "" && sent.GetUID() != live.GetUID():
		answer(w, http.StatusUnprocessableEntity, immutableUID())
		return
	}
	dry := r.URL.Query().Get("dryRun") != ""
	if dry {
		defer s.memory.keepManagers(at.key)()
	}
	if manager := r.URL.Query().Get("fieldManager"); apply {
		if conflict := s.memory.applied(at.key, body, live, manager, r.URL.Query().Get("force") == "true"); conflict != "" {
			fail(w, http.StatusConflict, conflict)
			return
		}
	} else if r.Method != http.MethodDelete {
		s.memory.updated(at.key, body, live, manager)
	}
	if dry {
		delete(body, "status")
		answer(w, http.StatusOK, s.merged(at.key, body).Object)
		return
	}
	if s.memory == nil { // no watch reads them
		s.writes = append(s.writes, strings.TrimRight(r.Method+" "+at.path+" "+at.namespace+"/"+at.name+" "+at.subresource, " "))
	}
	switch {
	case r.Method == http.MethodDelete:
		if body["propagationPolicy"] == string(metav1.DeletePropagationForeground) {
			s.waitForOwned(at.key)
		}
		s.remove(at.key)
		answer(w, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
	case at.subresource == "status":
		if status, ok := body["status"].(map[string]any); ok {
			for _, field := range s.dropped[at.path] {
				delete(status, field)
			}
		}
		answer(w, http.StatusOK, s.merge(at.key, map[string]any{"status": body["status"]}).Object)
	case r.Method == http.MethodPut:
		next := &unstructured.Unstructured{Object: body}
		s.store(at.key, next, "MODIFIED")
		answer(w, http.StatusOK, next.Object)
	default:
		delete(body, "status")
		answer(w, http.StatusOK, s.merge(at.key, body).Object)
	}
}

// watch sends the changes that a request selects. It does not know watches that begin with a list: clients list then.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, at request) {
	if r.URL.Query().Has("sendInitialEvents") {
		fail(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		return
	}
	out := &stream{at, make(chan map[string]any, 10000)}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	if since < s.compacted || since > s.version {
		out.events <- expired()
	}
	for _, c := range s.history {
		if c.version > since && at.matches(c.key, c.object) {
			out.events <- map[string]any{"type": c.kind, "object": c.object.Object}
		}
	}
	s.watches[out] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, out)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, open := <-out.events:
			if !open {
				return
			}
			if o, ok := e["object"].(map[string]any); ok && OnlyMetadata(r) {
				e["object"] = partial(o)
			}
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		}
	}
}

// decode decodes YAML, or JSON, which is faster.
func decode(raw []byte, out any) error {
	if json.Unmarshal(raw, out) == nil {
		return nil
	}
	return yaml.Unmarshal(raw, out)
}

// expired is the event that ends a watch which cannot be continued.
func expired() map[string]any {
	return map[string]any{"type": "ERROR", "object": metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
	}}
}

// meets reports whether an object is the one, and the version, that a deletion is about.
func (m *memory) meets(body map[string]any, live *unstructured.Unstructured) bool {
	for _, field := range []string{"uid", "resourceVersion"} {
		want, _, _ := unstructured.NestedString(body, "preconditions", field)
		is, _, _ := unstructured.NestedString(live.Object, "metadata", field)
		if want != is && (want != "" || m != nil && slices.Contains(m.guards, field)) {
			return false
		}
	}
	return true
}

// immutableUID is the answer to a change of another object than the one with the UID. Kubernetes ignores the UID in the
// status of a custom resource (apiextensions-apiserver/pkg/registry/customresource/status_strategy.go).
func immutableUID() metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "metadata.uid: field is immutable",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.uid", Message: "field is immutable"}}},
	}
}

// NeedsUpdateTimes refuses a status whose conditions do not all have lastUpdateTime, as a schema does that requires it.
func NeedsUpdateTimes(r *http.Request) (code int, message string) {
	if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/status") {
		return 0, ""
	}
	raw, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	sent := struct {
		Status struct{ Conditions []map[string]any }
	}{}
	if err == nil && json.Unmarshal(raw, &sent) == nil {
		for i, c := range sent.Status.Conditions {
			if c["lastUpdateTime"] == nil {
				return http.StatusUnprocessableEntity, fmt.Sprintf("Rollout.argoproj.io is invalid: status.conditions[%d].lastUpdateTime: Required value", i)
			}
		}
	}
	return 0, ""
}

// Unserved is the answer of an API server to requests for a resource that it does not serve.
const Unserved = "404 page not found"

func fail(w http.ResponseWriter, code int, message string) {
	if message == Unserved { // no Status
		http.Error(w, message, code)
		return
	}
	reason := map[int]metav1.StatusReason{
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusConflict: metav1.StatusReasonConflict,
	}[code]
	if message == "already exists" {
		reason = metav1.StatusReasonAlreadyExists
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
	if _, problem, ok := strings.Cut(message, " is invalid: "); ok {
		field, text, _ := strings.Cut(problem, ": ")
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: field, Message: text}}}
	}
	answer(w, code, status)
}
