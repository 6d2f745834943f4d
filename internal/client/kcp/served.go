package kcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namesAPI is a transport whose responses say which API a server does not have. A server that has just started does
// not serve all APIs, and client-go calls that "the server could not find the requested resource".
type namesAPI struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t namesAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusNotFound {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if status := new(metav1.Status); json.Unmarshal(body, status) != nil || status.Kind != "Status" {
		if body, err = json.Marshal(notServed(r.URL.Path)); err != nil {
			return nil, err
		}
		resp.Header.Set("Content-Type", "application/json")
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return resp, nil
}

// missingAPI is the cause of an error about an API that kcp does not serve. As in client-go, its type says
// that the API is missing, and not the object.
var missingAPI = metav1.StatusCause{
	Type: metav1.CauseTypeUnexpectedServerResponse, Message: "kcp does not serve the API",
}

// LacksAPI reports whether kcp does not serve an API that was requested, as while it starts.
func LacksAPI(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.Status().Details != nil && slices.Contains(status.Status().Details.Causes, missingAPI)
}

// notServed is the response for the path of an API that a server does not have.
func notServed(path string) metav1.Status {
	api := path
	if _, after, ok := strings.Cut(path, "/apis/"); ok {
		api = strings.Join(strings.SplitN(after, "/", 4)[:min(3, strings.Count(after, "/")+1)], "/")
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "kcp does not serve " + api + ": it may still be starting",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{missingAPI}},
	}
}
