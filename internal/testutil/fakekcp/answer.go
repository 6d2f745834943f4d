package fakekcp

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
)

// Answer is a reply to a request.
type Answer struct {
	// Code is the HTTP status. Zero means no response.
	Code int
	// Body is sent unchanged if it is a string, and as JSON if it is not a function that answers.
	Body any
}

// Hang never responds: the client must time out.
func Hang() Answer { return Answer{} }

// Refuse is an error response of the Kubernetes API.
func Refuse(code int, reason metav1.StatusReason, message string) Answer {
	return Answer{code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}}
}

// NotReady is a response of /readyz with the names of failed checks.
func NotReady(checks ...string) Answer {
	var b strings.Builder
	b.WriteString("[+]ping ok\n[+]etcd ok\n")
	for _, c := range checks {
		b.WriteString("[-]" + c + " failed: reason withheld\n")
	}
	b.WriteString("readyz check failed\n")
	return Answer{http.StatusInternalServerError, b.String()}
}

// Workspace is a response with a workspace in a phase. With a reason it has a false condition.
func Workspace(phase, reason, message string) Answer {
	status := map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Fine", "status": "True"}}}
	if reason != "" {
		status["conditions"] = append(status["conditions"].([]any),
			map[string]any{"type": "WorkspaceScheduled", "status": "False", "reason": reason, "message": message})
	}
	return Answer{http.StatusOK, map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": "scripted"}, "status": status,
	}}
}

// Export is a response with an APIExport and its identity, which is empty until kcp has created it.
func Export(name, identity string) Answer {
	return Answer{http.StatusOK, map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": map[string]any{"name": name},
		"status": map[string]any{"identityHash": identity},
	}}
}

// Shards is a response with a list of shards.
func Shards(shards ...kcp.Shard) Answer {
	items := []any{}
	for _, s := range shards {
		items = append(items, shardObject(s).Object)
	}
	return list("core.kcp.io/v1alpha1", "ShardList", items)
}

// Shard is a response with one shard.
func Shard(s kcp.Shard) Answer { return Answer{http.StatusOK, shardObject(s).Object} }

func shardObject(s kcp.Shard) *unstructured.Unstructured {
	notes := map[string]string{"kcp.io/cluster": "root"}
	if s.Cordoned {
		notes[kcp.CordonAnnotation] = ""
	}
	if len(s.OwnLabels) > 0 {
		notes[kcp.LabelsAnnotation] = strings.Join(s.OwnLabels, ",")
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard",
		"metadata": map[string]any{"name": s.Name, "resourceVersion": "7", "uid": "uid-of-" + s.Name},
		"spec":     map[string]any{"baseURL": s.BaseURL, "externalURL": s.ExternalURL, "virtualWorkspaceURL": s.VirtualWorkspaceURL},
	}}
	o.SetLabels(s.Labels)
	o.SetAnnotations(notes)
	return o
}

func list(apiVersion, kind string, items []any) Answer {
	return Answer{http.StatusOK, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}, "items": items}}
}

func object(code int, o *unstructured.Unstructured) Answer { return Answer{code, o.Object} }

func (a Answer) send(w http.ResponseWriter, r *http.Request) {
	switch body := a.Body.(type) {
	case nil:
		<-r.Context().Done()
	case string:
		w.WriteHeader(a.Code)
		_, _ = w.Write([]byte(body))
	case func(http.ResponseWriter, *http.Request):
		body(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.Code)
		_ = json.NewEncoder(w).Encode(body)
	}
}
