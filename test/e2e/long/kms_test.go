package long

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// kms is a plugin of Kubernetes' KMS v2 (k8s.io/kms/apis/v2). What it encrypts is a number of the plaintext, which it
// keeps: nothing else can decrypt it.
type kms struct {
	t    *testing.T
	dir  string
	mu   sync.Mutex
	kept map[string][]byte
}

// kmsSocket is the name of the socket in the directory of a plugin.
const kmsSocket = "kms.sock"

// serveKMS serves a plugin on a socket, which every user may open, as the one in a pod must.
func serveKMS(t *testing.T) (k *kms, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	k = &kms{t: t, dir: dir, kept: map[string][]byte{}}
	return k, k.serve()
}

func (k *kms) endpoint() string { return "unix://" + filepath.Join(k.dir, kmsSocket) }

// serve serves the plugin until it is stopped, or the test ends. gRPC is HTTP/2 with a prefixed message in each
// direction, so it needs no library for three methods.
func (k *kms) serve() (stop func()) {
	t := k.t
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(k.dir, kmsSocket))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(k.dir, kmsSocket), 0o666))
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: k, Protocols: protocols}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	t.Cleanup(stop)
	return stop
}

func (k *kms) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const prefix, ok, invalid = 5, 0, 3
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(raw) < prefix {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	answer, code := k.answer(filepath.Base(r.URL.Path), firstField(raw[prefix:])), ok
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	if answer == nil {
		code = invalid
	} else {
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))), answer...))
	}
	w.Header().Set("Grpc-Status", strconv.Itoa(code))
}

// answer returns the answer of a method, or nil if it refuses the text.
func (k *kms) answer(method string, text []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch method {
	case "Status":
		return message("v2", "ok", "e2e")
	case "Encrypt":
		sealed := rand.Text()
		k.kept[sealed] = bytes.Clone(text)
		return message(sealed, "e2e")
	case "Decrypt":
		if plain, ok := k.kept[string(text)]; ok {
			return message(string(plain))
		}
	}
	return nil
}

// message encodes texts as the first fields of a protocol buffer.
func message(texts ...string) []byte {
	var out []byte
	for i, text := range texts {
		out = binary.AppendUvarint(append(out, byte(i+1)<<3|2), uint64(len(text)))
		out = append(out, text...)
	}
	return out
}

// firstField returns the bytes of the first field of a protocol buffer, if it is the text to encrypt or to decrypt.
func firstField(b []byte) []byte {
	if len(b) == 0 || b[0] != 1<<3|2 {
		return nil
	}
	size, n := binary.Uvarint(b[1:])
	return b[1+n:][:size]
}
