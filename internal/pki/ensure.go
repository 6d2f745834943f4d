package pki

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// defaultRenewBefore is how long before its end a certificate is renewed; short-lived ones when a third of their life is
// left.
const defaultRenewBefore = 30 * 24 * time.Hour

// Options say how to bring a PKI up to date.
type Options struct {
	Now time.Time
	// RenewBefore is how long before its end a certificate is renewed, but never before two thirds of its life are over.
	// Zero is 30 days.
	RenewBefore time.Duration
	// Renew tells which certificates to issue anew even if they fit. Nil is none.
	Renew func(Cert) bool
}

// Change is a certificate that was issued, and why.
type Change struct {
	Cert
	// Renewed says that it replaces one.
	Renewed bool
	Reason  string
}

// Result is a PKI that fits its setup, and what was done to get there.
type Result struct {
	State *State
	// CAs are the authorities that were made.
	CAs []CA
	// Changes are the certificates that were issued, in the order of the table.
	Changes []Change
	// Kept is the number of certificates that fit.
	Kept int
	// NextExpiry is when the first certificate or authority of the setup expires, NextExpiryName which.
	NextExpiry     time.Time
	NextExpiryName string
}

// Created returns how many certificates there were not.
func (r *Result) Created() int { return len(r.Changes) - r.Renewed() }

// Renewed returns how many certificates replace others.
func (r *Result) Renewed() int {
	n := 0
	for _, c := range r.Changes {
		if c.Renewed {
			n++
		}
	}
	return n
}

type ensurer struct {
	t           *topology.Topology
	o           Options
	table       []Cert
	authorities map[CA]*authority
	result      *Result
}

// Ensure makes what a setup's PKI lacks, keeps what fits and issues the rest anew. It never touches an authority that
// exists. Certificates that are not of the setup are kept as they are. The state that it is given stays as it is.
func Ensure(t *topology.Topology, s *State, o Options) (*Result, error) {
	o.Now = o.Now.UTC().Truncate(time.Second) // as certificates say it
	if o.RenewBefore == 0 {
		o.RenewBefore = defaultRenewBefore
	}
	e := &ensurer{t: t, o: o, table: Table(t), authorities: map[CA]*authority{}, result: &Result{State: s.clone()}}
	if err := e.ensureCAs(); err != nil {
		return nil, err
	}
	if err := e.ensureServiceAccount(); err != nil {
		return nil, err
	}
	e.ensureInstallation()
	leaves, err := e.ensureLeaves()
	if err != nil {
		return nil, err
	}
	for i, l := range leaves {
		c := e.table[i]
		e.expires(c.Secret, l.notAfter)
		if l.reason == "" {
			e.result.Kept++
			continue
		}
		_, had := s.Leaves[c.Key()]
		e.result.State.Leaves[c.Key()] = l.pair
		e.result.Changes = append(e.result.Changes, Change{Cert: c, Renewed: had, Reason: l.reason})
	}
	return e.result, nil
}

// leaf is a certificate of the table after it was checked and, with a reason, issued.
type leaf struct {
	pair     Pair
	reason   string
	notAfter time.Time
}

// ensureLeaves checks and issues all certificates at once: keys and signatures are nearly all the work of a run without
// waiting.
func (e *ensurer) ensureLeaves() ([]leaf, error) {
	leaves := make([]leaf, len(e.table))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range e.table {
		g.Go(func() (err error) {
			leaves[i], err = e.ensureLeaf(e.table[i])
			return err
		})
	}
	return leaves, g.Wait()
}

func (e *ensurer) ensureLeaf(c Cert) (leaf, error) {
	a, alg := e.authorities[c.CA], e.t.Setup.Spec.PKI.KeyAlgorithm
	pair, ok := e.result.State.Leaves[c.Key()]
	l := leaf{reason: "it is missing"}
	if ok {
		l.reason, l.notAfter = e.misfit(c, pair, a)
	}
	if l.reason == "" && e.o.Renew != nil && e.o.Renew(c) {
		l.reason = "it was asked for"
	}
	cross := e.cross(c.CA)
	if l.reason == "" {
		if l.pair = a.chain(pair, cross); !bytes.Equal(l.pair.Cert, pair.Cert) {
			l.reason = "the chain that is sent with it changed"
		}
		return l, nil
	}
	if a.key == nil {
		return leaf{}, noKey(a, c.Secret)
	}
	serial, err := newSerial()
	if err != nil {
		return leaf{}, err
	}
	r := c.request(alg, serial, e.o.Now)
	if l.pair, err = a.issue(r); err != nil {
		return leaf{}, fmt.Errorf("issue %s: %w", c.Secret, err)
	}
	l.pair = a.chain(l.pair, cross)
	l.notAfter = r.notAfter
	if a.cert.NotAfter.Before(l.notAfter) {
		l.notAfter = a.cert.NotAfter
	}
	return l, nil
}

// cross is what servers send after certificates of an authority, for clients that trust only the one before. Within the
// setup everybody trusts both: it is for kubeconfigs that were handed out.
func (e *ensurer) cross(ca CA) []byte {
	if ca != ServerCA {
		return nil
	}
	return e.result.State.CAs[ca].Cross
}

// expires notes the end of a certificate.
func (e *ensurer) expires(name string, at time.Time) {
	if e.result.NextExpiry.IsZero() || at.Before(e.result.NextExpiry) {
		e.result.NextExpiry, e.result.NextExpiryName = at, name
	}
}

// clone copies a state as deep as Ensure changes it.
func (s *State) clone() *State {
	out := &State{Installation: s.Installation, CAs: map[CA]Authority{}, ServiceAccount: s.ServiceAccount, Leaves: map[LeafKey]Pair{}}
	maps.Copy(out.CAs, s.CAs)
	maps.Copy(out.Leaves, s.Leaves)
	return out
}
