package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// defaultRenewBefore is how long before it expires a certificate is renewed. A short-lived one is renewed when a third
// of its lifetime is left.
const defaultRenewBefore = 30 * 24 * time.Hour

// Options are the options of Ensure.
type Options struct {
	Now time.Time
	// RenewBefore is how long before it expires a certificate is renewed, but never before two thirds of its lifetime
	// have passed. Default: 30 days.
	RenewBefore time.Duration
	// Renew reports whether to renew a certificate that is up to date. Nil renews none.
	Renew func(Cert) bool
	// Replace creates authorities and keys also if certificates show that they are lost, and replaces authorities that
	// have expired or are Lost. Everything that trusts the previous ones rejects the new ones.
	Replace bool
	// Lost are authorities whose private keys are lost.
	Lost []topology.CA
	// Installation is the identity of the installation, for a PKI without one. Empty: a new one, if the installation is
	// new.
	Installation Installation
}

// Change is a certificate that was issued, and why.
type Change struct {
	Cert
	// Renewed is set if it replaces an existing certificate.
	Renewed bool
	Reason  string
}

// Result is a PKI that is up to date with its setup, and what Ensure changed.
type Result struct {
	State *State
	// CAs are the authorities that were created.
	CAs []topology.CA
	// Changes are the certificates that were issued, in the order of the table.
	Changes []Change
	// Kept is the number of certificates that did not change.
	Kept int
	// NextExpiry is when the first certificate or authority of the setup expires, and NextExpiryName is its name.
	NextExpiry     time.Time
	NextExpiryName string
}

// Created returns the number of certificates that did not exist before.
func (r *Result) Created() int { return len(r.Changes) - r.Renewed() }

// Renewed returns the number of certificates that replace existing ones.
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
	authorities map[topology.CA]*authority
	// sent are the certificates that servers send after their own.
	sent   map[topology.CA][]*x509.Certificate
	result *Result
}

// Ensure creates what is missing in the PKI of a setup, and renews certificates that are expiring or do not match the
// setup. It never changes an authority that exists, nor certificates that do not belong to the setup. It does not
// modify s.
func Ensure(t *topology.Topology, s *State, o Options) (*Result, error) {
	o.Now = o.Now.UTC().Truncate(time.Second) // the precision of certificates
	if o.RenewBefore == 0 {
		o.RenewBefore = defaultRenewBefore
	}
	e := &ensurer{
		t: t, o: o, table: s.certificates(t), authorities: map[topology.CA]*authority{},
		sent:   map[topology.CA][]*x509.Certificate{},
		result: &Result{State: s.clone()},
	}
	if err := e.ensureCAs(); err != nil {
		return nil, err
	}
	if err := e.ensureServiceAccount(); err != nil {
		return nil, err
	}
	e.ensureEncryption()
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

// ensureInstallation identifies an installation that has no identity yet. One that was created before installations
// had an identity keeps the prefix in external etcds that it has used since.
func (e *ensurer) ensureInstallation() {
	if e.result.State.Installation.ID == "" {
		e.result.State.Installation = e.o.Installation
	}
	if e.result.State.Installation.ID != "" {
		return
	}
	e.result.State.Installation = NewInstallation(e.t.Name, e.t.Installation())
	if e.hasLeaf() {
		e.result.State.Installation.EtcdPrefix = "/" + e.t.Name
	}
}

// leaf is a certificate of the table. A reason means that it was issued in this run.
type leaf struct {
	pair     Pair
	reason   string
	notAfter time.Time
}

// ensureLeaves checks and issues all certificates in parallel: most of the CPU time of a run goes into keys and
// signatures.
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
	a := e.authorities[c.CA]
	alg := e.t.Setup.Spec.PKI.KeyAlgorithm
	pair, ok := e.result.State.Leaves[c.Key()]
	l := leaf{reason: "it is missing"}
	if ok {
		l.reason, l.notAfter = e.outdated(c, pair, a)
	}
	if l.reason == "" && e.o.Renew != nil && e.o.Renew(c) {
		l.reason = "its renewal was requested"
	}
	sent := e.sent[c.CA]
	if l.reason == "" {
		if l.pair = a.chain(pair, sent); !bytes.Equal(l.pair.Cert, pair.Cert) {
			l.reason = "the chain that is sent with it changed"
		}
		return l, nil
	}
	if a.key == nil {
		return leaf{}, noKey(a, c.Secret+" must be issued, because "+l.reason)
	}
	serial, err := newSerial()
	if err != nil {
		return leaf{}, err
	}
	r := c.request(alg, serial, e.o.Now)
	if l.pair, err = a.issue(r); err != nil {
		return leaf{}, fmt.Errorf("issue %s: %w", c.Secret, err)
	}
	l.pair = a.chain(l.pair, sent)
	l.notAfter = r.notAfter
	if a.cert.NotAfter.Before(l.notAfter) {
		l.notAfter = a.cert.NotAfter
	}
	return l, nil
}

// expires records when a certificate expires.
func (e *ensurer) expires(name string, at time.Time) {
	if e.result.NextExpiry.IsZero() || at.Before(e.result.NextExpiry) {
		e.result.NextExpiry = at
		e.result.NextExpiryName = name
	}
}

// clone returns a copy of the state that can be changed without changing s.
func (s *State) clone() *State {
	out := &State{
		Installation: s.Installation, CAs: map[topology.CA]Authority{}, ServiceAccount: s.ServiceAccount,
		Encryption: s.Encryption, Users: maps.Clone(s.Users), Leaves: map[LeafKey]Pair{},
	}
	maps.Copy(out.CAs, s.CAs)
	maps.Copy(out.Leaves, s.Leaves)
	return out
}
