package framework

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// StartWebhook starts a server with TLS that kcp calls, and returns a kubeconfig for it. It ends with the test.
func StartWebhook(t *testing.T, answer func(request map[string]any) (response any)) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer(request)) // kcp repeats the request if it gets no answer
	}))
	t.Cleanup(s.Close)
	return webhookKubeconfig(t, s.URL, pemOf(s))
}

// pemOf is the certificate that the certificate of a server is verified with.
func pemOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// webhookKubeconfig is the configuration of a webhook.
func webhookKubeconfig(t *testing.T, url, ca string) string {
	t.Helper()
	type object = map[string]any
	return AsJSON(t, object{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []object{{"name": "x", "cluster": object{"server": url, "certificate-authority-data": []byte(ca)}}},
		"contexts": []object{{"name": "x", "context": object{"cluster": "x", "user": "x"}}},
		"users":    []object{{"name": "x", "user": object{}}},
	})
}

// Beside writes a file beside the setup file.
func (s *Setup) Beside(t *testing.T, path, content string) {
	t.Helper()
	path = filepath.Join(filepath.Dir(s.File), path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
