package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// pluginFor writes a kubeconfig for a server, whose credential plugin returns the token 1, then 2, and so on. It returns
// a client, and how often the plugin has run.
func pluginFor(t *testing.T, url string) (*Client, func() int) {
	t.Helper()
	return slowPluginFor(t, url, 0)
}

// slowPluginFor is pluginFor with a plugin that takes some seconds from the second time on, as long as its user.
func slowPluginFor(t *testing.T, url string, seconds int) (*Client, func() int) {
	t.Helper()
	ran := filepath.Join(t.TempDir(), "ran")
	plugin := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(plugin, []byte(`#!/bin/sh
echo >> `+ran+`
n=$(wc -l < `+ran+` | tr -d ' ')
[ "$n" = 1 ] || sleep `+strconv.Itoa(seconds)+`
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "'$n'"}}'
`), 0o700)) //nolint:gosec // a program
	file := kubeconfigFor(t, url)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.NewReplacer("user: {}", "user: {exec: {command: "+plugin+
		", apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}",
		"{server:", "{insecure-skip-tls-verify: true, server:").Replace(string(raw))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := New(topology.Cluster{Name: "eu", Kubeconfig: file, Namespace: "kcp"}, Options{Now: time.Now, Notify: t.Logf})
	require.NoError(t, err)
	return c, func() int {
		text, err := os.ReadFile(ran)
		require.NoError(t, err)
		return strings.Count(string(text), "\n")
	}
}

// The time that a user takes to log in is not that of the API server: the plugin has run before the first request.
func TestAPluginRunsBeforeTheFirstRequest(t *testing.T) {
	c, ran := pluginFor(t, "https://127.0.0.1:1")
	require.NoError(t, c.logIn(t.Context()), "it needs no server")
	require.Equal(t, 1, ran())
	require.Error(t, c.Connect(t.Context()))
	require.Equal(t, 1, ran(), "requests use its credentials")
}

// A request whose credentials have expired is sent again with new ones, and fails if the API server refuses these, too.
func TestExpiredCredentialsAreRenewed(t *testing.T) {
	valid, bodies := "2", []string{}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+valid {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "code": 401, "reason": "Unauthorized"}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`)
	}))
	t.Cleanup(srv.Close)
	c, ran := pluginFor(t, srv.URL)
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.ConfigMap.GroupVersionKind)
	o.SetName("a")
	_, err := c.Resource(kind.ConfigMap.GVR()).Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, 2, ran())
	require.Len(t, bodies, 2)
	require.Contains(t, bodies[0], "ConfigMap")
	require.Equal(t, bodies[0], bodies[1])

	valid = "none"
	_, err = c.Resource(kind.ConfigMap.GVR()).Create(t.Context(), o, metav1.CreateOptions{})
	require.True(t, apierrors.IsUnauthorized(err), err)
	require.Len(t, bodies, 4, "once")
}

// While a plugin waits for its user, all requests wait for it, whatever their contexts say. A run whose lock has expired
// meanwhile has a context that has ended: what waited is not sent then.
func TestARequestThatWaitedForAPluginTooLongIsNotSent(t *testing.T) {
	requests := 0
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(srv.Close)
	c, ran := slowPluginFor(t, srv.URL, 1)
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.ConfigMap.GroupVersionKind)
	o.SetName("a")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.Resource(kind.ConfigMap.GVR()).Create(ctx, o, metav1.CreateOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 2, ran(), "the first request was not accepted")
	require.Equal(t, 1, requests)
}
