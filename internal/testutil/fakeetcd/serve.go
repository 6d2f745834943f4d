package fakeetcd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// The gRPC codes of etcd.
const (
	notFound        = 5
	failedPrecedent = 9
	unavailable     = 14
	sizeOfDatabase  = 3 << 20
	prefixSize      = 5
)

// serve serves a pod until the test ends.
func (e *Etcd) serve(i int32) {
	leaf := e.state.Leaves[pki.KeyOf(e.component, topology.CertServer)]
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		e.t.Fatalf("fakeetcd: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(e.state.CAs[topology.EtcdCA].Trusted())
	p := e.pods[i]
	p.listener = fakekcp.NewListener()
	srv := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.answer(p, w, r) }),
		ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
			// A client does not read an in-memory connection while it writes, so it must wait for the result.
			MaxVersion: tls.VersionTLS12,
			VerifyPeerCertificate: func(_ [][]byte, chains [][]*x509.Certificate) error {
				return chains[0][0].VerifyHostname(e.component.ClientHost())
			},
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeTLS(p.listener, "", "")
	}()
	e.t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
}

// answer handles a gRPC request: a prefixed message in each direction, and the status in the trailers.
func (e *Etcd) answer(p *pod, w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(raw) < prefixSize {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/etcdserverpb.Maintenance/Snapshot" {
		e.sendSnapshot(w)
		return
	}
	e.mu.Lock()
	message, code, text := e.do(p, strings.TrimPrefix(r.URL.Path, "/etcdserverpb."), raw[prefixSize:])
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	if code == 0 {
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
	}
	w.Header().Set("Grpc-Status", strconv.Itoa(code))
	w.Header().Set("Grpc-Message", strings.ReplaceAll(text, " ", "%20"))
}

// sendSnapshot streams the snapshot in small messages, as etcd does.
func (e *Etcd) sendSnapshot(w http.ResponseWriter) {
	e.mu.Lock()
	raw, broken := e.snapshot, e.breaksAfter
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	const size = 1 << 10
	for at := 0; at < len(raw); at += size {
		if broken > 0 && at >= broken {
			w.Header().Set("Grpc-Status", strconv.Itoa(unavailable))
			w.Header().Set("Grpc-Message", "etcdserver:%20server%20stopped")
			return
		}
		end := min(at+size, len(raw))
		message := content(number(nil, 2, uint64(len(raw)-end)), 3, raw[at:end])
		if _, err := w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)); err != nil {
			return
		}
	}
	w.Header().Set("Grpc-Status", "0")
}

func (e *Etcd) do(p *pod, method string, request []byte) (message []byte, code int, text string) {
	if method == "Maintenance/Status" {
		return e.status(p), 0, ""
	}
	if !e.majority() {
		return nil, unavailable, "etcdserver: request timed out"
	}
	switch method {
	case "KV/Range", "KV/Put", "KV/Txn":
		message = e.keys.do(method, request)
	case "Cluster/MemberList":
		for _, m := range e.members {
			one := number(nil, 1, m.id)
			message = content(message, 2, content(content(one, 2, []byte(m.name)), 3, []byte(m.url)))
		}
	case "Cluster/MemberRemove":
		id, _ := binary.Uvarint(request[1:])
		if e.member(id) == nil {
			return nil, notFound, "etcdserver: member not found"
		}
		if err := e.change("remove"); err != nil {
			return nil, unavailable, err.Error()
		}
		for i, m := range e.members {
			if m.id == id {
				e.members = append(e.members[:i:i], e.members[i+1:]...)
				break
			}
		}
	case "Maintenance/Alarm":
		id, _ := binary.Uvarint(messageOf(request)[2])
		if err := e.change("disarm"); err != nil {
			return nil, unavailable, err.Error()
		}
		const corrupt = "CORRUPT" // kcpctl disarms no other type
		e.alarms[corrupt] = slices.DeleteFunc(e.alarms[corrupt], func(of uint64) bool { return of == id })
	case "Cluster/MemberAdd":
		url := string(request[2:])
		for _, m := range e.members {
			if m.url == url {
				return nil, failedPrecedent, "etcdserver: Peer URLs already exists"
			}
		}
		if err := e.change("add"); err != nil {
			return nil, unavailable, err.Error()
		}
		e.lastID++
		e.members = append(e.members, &member{id: e.lastID, url: url})
	}
	e.start()
	return message, 0, ""
}

// status returns the status of a pod. The first member leads.
func (e *Etcd) status(p *pod) []byte {
	leader := uint64(0)
	if e.majority() {
		leader = e.members[0].id
	}
	out := content(nil, 1, number(nil, 2, p.id))
	out = content(out, 2, []byte("3.6.16"))
	out = number(number(out, 3, sizeOfDatabase), 4, leader)
	for _, alarm := range slices.Sorted(maps.Keys(e.alarms)) {
		for _, id := range e.alarms[alarm] { // in the text format of protocol buffers, which omits zeros
			text := "alarm:" + alarm + " "
			if id != 0 {
				text = "memberID:" + strconv.FormatUint(id, 10) + " " + text
			}
			out = content(out, 8, []byte(text))
		}
	}
	return out
}

func number(b []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3), v)
}

func content(b []byte, field int, v []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3|2), uint64(len(v))), v...)
}
