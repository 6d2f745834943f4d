package faults

import (
	"net"
	"net/http"

	"github.com/kcpctl/kcpctl/test/standin"
)

// serve handles a request of kcpctl. A request that the fault of the place hits fails.
func (w *world) serve(p *standin.Proxy, s *standin.Site, rw http.ResponseWriter, r *http.Request) {
	pl := w.at(s.Namespace)
	if pl == nil {
		http.Error(rw, "the place is gone", http.StatusUnauthorized)
		return
	}
	t := pl.under()
	if !t.add(r) {
		p.Do(s, rw, r, nil)
		return
	}
	k, x := t.fault.kind, &exchange{w: rw, conn: standin.Conn(r), gone: r.Context().Done(), kill: t.kill}
	switch {
	case !k.executed || endless(r) && k.answers:
	case standin.Forwards(r):
		p.Do(s, rw, r, func(c net.Conn) { x.conn = c; k.fail(x) }) // the connection is made, then it breaks
		return
	case !endless(r):
		p.Do(s, &nowhere{header: http.Header{}}, r, nil)
	}
	k.fail(x)
}

// nowhere discards a response.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}
