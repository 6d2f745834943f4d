package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fleetExport is the path of the virtual workspace.
const fleetExport = "/services/apiexport/fleet/kubernetes"

// fleetServer serves a fleetStore as a kcp does with a virtual workspace.
type fleetServer struct {
	*fleetStore
	// writes is the number of requests that have written to workspaces, own to the compute workspace, and byKind of both
	// by method, resource and subresource.
	writes, own atomic.Int64
	byKind      sync.Map
}

// wrote counts a writing request.
func (s *fleetServer) wrote(workspace, kind string) {
	if workspace == fleetCompute {
		s.own.Add(1)
	} else {
		s.writes.Add(1)
	}
	n, _ := s.byKind.LoadOrStore(kind, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (s *fleetServer) kinds() map[string]int64 {
	out := map[string]int64{}
	s.byKind.Range(func(kind, n any) bool {
		out[kind.(string)] = n.(*atomic.Int64).Load()
		return true
	})
	return out
}

// parseFleet returns the object of a path, the subresource, and whether it is one.
func parseFleet(path string) (k fleetKey, subresource string, ok bool) {
	_, path, ok = strings.Cut(path, "/clusters/")
	if !ok {
		return k, "", false
	}
	k.workspace, path, _ = strings.Cut(path, "/")
	parts := strings.Split(path, "/")
	n := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if n == 0 || len(parts) <= n {
		return k, "", false
	}
	prefix, rest := strings.Join(parts[:n], "/"), parts[n:]
	if rest[0] == "namespaces" && len(rest) > 2 && rest[2] != "status" {
		k.namespace, rest = rest[1], rest[2:]
	}
	k.resource = prefix + "/" + rest[0]
	if len(rest) > 1 {
		k.name = rest[1]
	}
	if len(rest) > 2 {
		subresource = rest[2]
	}
	return k, subresource, true
}

// ServeHTTP implements http.Handler.
func (s *fleetServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, subresource, ok := parseFleet(r.URL.Path)
	if !ok {
		fleetFail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	partial := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	switch {
	case r.URL.Query().Get("watch") != "":
		s.serveWatch(w, r, k, partial)
	case r.Method == http.MethodGet && k.name == "":
		s.serveList(w, r, k, partial)
	case r.Method == http.MethodGet:
		o := s.get(k)
		if o == nil {
			fleetFail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		fleetAnswer(w, shape(o.raw, partial))
	default:
		how := map[string]string{"application/apply-patch+yaml": "apply", "application/merge-patch+json": "merge"}[r.Header.Get("Content-Type")]
		s.wrote(k.workspace, strings.Join(strings.Fields(strings.Join([]string{r.Method, how, k.resource, subresource}, " ")), " "))
		s.serveWrite(w, r, k, subresource)
	}
}

// shape returns an object, or its metadata.
func shape(raw []byte, partial bool) []byte {
	if !partial {
		return raw
	}
	var o struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return raw
	}
	return fmt.Appendf(nil, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":%s}`, o.Metadata)
}

func (s *fleetServer) serveList(w http.ResponseWriter, r *http.Request, k fleetKey, partial bool) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	raws, next, version := s.list(k.resource, k.workspace, limit, q.Get("continue"))
	w.Header().Set("Content-Type", "application/json")
	kind := `"apiVersion":"v1","kind":"List"`
	if partial {
		kind = `"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList"`
	}
	fmt.Fprintf(w, `{%s,"metadata":{"resourceVersion":"%d","continue":%q},"items":[`, kind, version, next)
	for i, raw := range raws {
		if i > 0 {
			_, _ = io.WriteString(w, ",")
		}
		_, _ = w.Write(shape(raw, partial))
	}
	_, _ = io.WriteString(w, "]}")
}

func (s *fleetServer) serveWatch(w http.ResponseWriter, r *http.Request, k fleetKey, partial bool) {
	since, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	watch := s.watch(k.resource, k.workspace, since)
	if watch == nil {
		fleetFail(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	defer s.unwatch(k.resource, watch)
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-watch.wake:
		}
		for _, e := range watch.take() {
			fmt.Fprintf(w, `{"type":%q,"object":`, e.kind)
			_, _ = w.Write(shape(e.raw, partial))
			_, _ = io.WriteString(w, "}\n")
		}
		w.(http.Flusher).Flush()
	}
}

func (s *fleetServer) serveWrite(w http.ResponseWriter, r *http.Request, k fleetKey, subresource string) {
	body, err := io.ReadAll(r.Body)
	sent := map[string]any{}
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &sent)
	}
	if err != nil {
		fleetFail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	apply := r.Header.Get("Content-Type") == "application/apply-patch+yaml" || r.Method == http.MethodPut
	if r.Method == http.MethodPost {
		k.name, _ = within(sent, "metadata")["name"].(string)
	}
	var raw []byte
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(k.resource, "/selfsubjectreviews"):
		within(within(sent, "status"), "userInfo")["username"] = "controller"
		raw, err = json.Marshal(sent)
	case r.Method == http.MethodPost && r.URL.Query().Get("dryRun") != "":
		raw = body
	case r.Method == http.MethodPost && s.get(k) != nil:
		fleetFail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	case r.Method == http.MethodPost:
		raw, err = s.change(k, true, "", func(o map[string]any) { applyFleet(o, sent) })
	case r.Method == http.MethodDelete:
		var existed bool
		if existed, err = s.remove(k); existed {
			raw = []byte(`{"apiVersion":"v1","kind":"Status","status":"Success"}`)
		}
	case subresource == "status":
		raw, err = s.change(k, false, "", func(o map[string]any) { mergeFleet(o, map[string]any{"status": sent["status"]}) })
	case apply:
		raw, err = s.change(k, r.Method != http.MethodPut, "", func(o map[string]any) { applyFleet(o, sent) })
	case r.Method == http.MethodPatch:
		delete(sent, "status")
		raw, err = s.change(k, false, "", func(o map[string]any) {
			meta := within(sent, "metadata")
			delete(meta, "uid")
			delete(meta, "resourceVersion")
			mergeFleet(o, sent)
		})
	}
	switch {
	case err != nil:
		fleetFail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case raw == nil:
		fleetFail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	default:
		fleetAnswer(w, raw)
	}
}

// applyFleet applies what one manager sends, who is the only one: it replaces the fields.
func applyFleet(o, sent map[string]any) {
	meta, next := within(o, "metadata"), within(sent, "metadata")
	old := within(meta, "annotations")["kcp.io/cluster"]
	for name, v := range next {
		if name != "uid" && name != "resourceVersion" {
			meta[name] = v
		}
	}
	if old != nil {
		within(meta, "annotations")["kcp.io/cluster"] = old
	}
	for name, v := range sent {
		if name != "metadata" && name != "status" {
			o[name] = v
		}
	}
}

// mergeFleet applies a JSON merge patch.
func mergeFleet(o, patch map[string]any) {
	for name, v := range patch {
		inner, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(o, name)
		case isMap:
			mergeFleet(within(o, name), inner)
		default:
			o[name] = v
		}
	}
}

func fleetAnswer(w http.ResponseWriter, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

func fleetFail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
	})
}
