package logs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// serveLogs is a cluster whose API server answers requests for the logs of pods, and pods of a rollout that does not
// complete: the old one runs, and the image of the new one cannot be pulled.
func serveLogs(t *testing.T) (*cluster.Client, []*corev1.Pod) {
	t.Helper()
	refused := make(chan struct{})
	logOf := func(pod string, serve http.HandlerFunc) (string, http.HandlerFunc) {
		return "/api/v1/namespaces/kcp/pods/" + pod + "/log", serve
	}
	mux := http.NewServeMux()
	mux.HandleFunc(logOf("new", func(w http.ResponseWriter, _ *http.Request) {
		status := apierrors.NewBadRequest(`container "kcp" in pod "new" is waiting to start: image can't be pulled`)
		status.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(status.ErrStatus)
		close(refused)
	}))
	mux.HandleFunc(logOf("old", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "one")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Get("previous") == "" {
			<-refused
			select { // a request that is canceled now ends the log here
			case <-r.Context().Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		fmt.Fprintln(w, "two")
	}))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	api := &cluster.API{Context: s.URL, HTTP: s.Client()}
	cl, err := cluster.New(topology.Cluster{Name: "eu", Namespace: "kcp"}, cluster.Options{
		API: func(topology.Cluster) (*cluster.API, error) { return api, nil }, Now: time.Now, Notify: t.Logf,
	})
	require.NoError(t, err)
	var pods []*corev1.Pod
	for name, id := range map[string]string{"new": "", "old": "containerd://1"} {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kcp"}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Name: "kcp", ContainerID: id}}},
		})
	}
	return cl, pods
}

func TestACopyIsCompleteAlthoughAContainerHasNoLog(t *testing.T) {
	cl, pods := serveLogs(t)
	var text bytes.Buffer
	err := Copy(t.Context(), cl, pods, Options{}, &text)
	require.ErrorContains(t, err, "read the log of Pod/kcp/new")
	require.ErrorContains(t, err, "image can't be pulled")
	require.Equal(t, "[pod/old/kcp] one\n[pod/old/kcp] two\n", text.String())
}

func TestAContainerThatHasNotStartedHasNoPreviousLog(t *testing.T) {
	cl, pods := serveLogs(t)
	var text bytes.Buffer
	require.NoError(t, Copy(t.Context(), cl, pods, Options{Previous: true}, &text))
	require.Equal(t, "[pod/old/kcp] one\n[pod/old/kcp] two\n", text.String())
	for _, p := range pods {
		p.Status.ContainerStatuses = nil
	}
	require.ErrorIs(t, Copy(t.Context(), cl, pods, Options{Previous: true}, io.Discard), ErrNoPrevious)
}

func TestACopyEndsWithItsOutput(t *testing.T) {
	cl, pods := serveLogs(t)
	err := Copy(t.Context(), cl, pods, Options{}, brokenPipe{})
	require.EqualError(t, err, "write log: broken pipe", "not that the others were canceled")
}
