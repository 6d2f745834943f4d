// Package etcds lists and replaces the members of managed etcds.
package etcds

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// MemberRuntime is a runtime that runs the members of managed etcds: pods with volumes. This machine runs none, so
// package local does not implement it.
type MemberRuntime interface {
	// DialMember connects to the client port of a member's pod.
	DialMember(ctx context.Context, c *topology.Component, pod string) (net.Conn, error)
	// MemberStart returns the variables that SetMemberStart has set: nil if they are as rendered.
	MemberStart(ctx context.Context, c *topology.Component) (map[string]string, error)
	// SetMemberStart overrides variables with which members without data start. Nil removes the overrides.
	SetMemberStart(ctx context.Context, c *topology.Component, env map[string]string) error
	// EmptyMember deletes a member's pod with its volume, which are created again, and waits until the old ones are
	// gone.
	EmptyMember(ctx context.Context, c *topology.Component, pod string) error
}

// certificateValidity is how long the certificates are valid with which kcpctl itself calls etcd.
const certificateValidity = time.Hour

// EtcdMember is the state of a member of a managed etcd.
type EtcdMember struct {
	Etcd topology.ID `json:"etcd"`
	Pod  string      `json:"pod"`
	// ID is empty if the other members do not know it.
	ID      string `json:"id,omitempty"`
	Healthy bool   `json:"healthy"`
	Leader  bool   `json:"leader"`
	Learner bool   `json:"learner"`
	// DBSize is the size of its database in bytes.
	DBSize int64 `json:"dbSize,omitempty"`
	// Reason is why it is not healthy.
	Reason string `json:"reason,omitempty"`
	// Alarms make the whole etcd refuse writes: NOSPACE, which a healthy member raises, and CORRUPT.
	Alarms []string `json:"alarms,omitempty"`
}

// reasonCorrupt is why a member with other data than the others is not healthy.
const reasonCorrupt = "alarm " + etcd.AlarmCorrupt + ": its data differs from that of the other members"

// Members lists the members of managed etcds.
type Members struct {
	Store pki.Store
	Pods  MemberRuntime
	Now   func() time.Time
}

// census has the reports of the members of an etcd at some moment.
type census struct {
	// members are in the order of their pods.
	members []EtcdMember
	// known are the members as a majority knows them; empty without a majority.
	known []etcd.Member
	// alarms are those that any member knows.
	alarms []etcd.Alarm
}

// healthy counts the healthy members.
func (s *census) healthy() (n int) {
	for _, m := range s.members {
		if m.Healthy {
			n++
		}
	}
	return n
}

// List returns the members of an etcd.
func (m *Members) List(ctx context.Context, c *topology.Component) ([]EtcdMember, error) {
	state, err := m.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	s, err := m.ask(ctx, state, c)
	if err != nil {
		return nil, err
	}
	return s.members, nil
}

// ask asks all members of an etcd concurrently.
func (m *Members) ask(ctx context.Context, state *pki.State, c *topology.Component) (*census, error) {
	connect, err := m.connector(state, c)
	if err != nil {
		return nil, err
	}
	var pods []string
	for i := range c.Replicas {
		pods = append(pods, c.Member(i))
	}
	type answer struct {
		member EtcdMember
		list   []etcd.Member
		alarms []etcd.Alarm
		err    error
	}
	answers := parallel.Map(len(pods), pods, func(pod string) (a answer) {
		a.member = EtcdMember{Etcd: c.ID(), Pod: pod}
		client, err := connect(pod)
		if err != nil {
			a.err = err
			return a
		}
		defer client.Close()
		a.alarms = a.member.examine(ctx, client)
		a.list, _ = client.Members(ctx) // a member without a majority does not know them
		return a
	})
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	s := &census{}
	for _, a := range answers {
		if a.err != nil {
			return nil, a.err
		}
		s.members = append(s.members, a.member)
		if a.list != nil && (s.known == nil || a.member.Leader) {
			s.known = a.list
		}
		for _, alarm := range a.alarms {
			if !slices.Contains(s.alarms, alarm) {
				s.alarms = append(s.alarms, alarm)
			}
		}
	}
	s.compare(c)
	s.blame()
	return s, nil
}

// connector returns a function that creates clients of members, with a certificate of kcpctl's own.
func (m *Members) connector(state *pki.State, c *topology.Component) (func(pod string) (*etcd.Client, error), error) {
	pair, err := pki.Mint(state, pki.MintSpec{
		CN: pki.CNSelf, CA: topology.EtcdCA, Hosts: []string{c.ClientHost()},
		Algorithm: v1alpha1.KeyECDSAP256, Validity: certificateValidity,
	}, m.Now())
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", c.ID(), err)
	}
	return func(pod string) (*etcd.Client, error) {
		return etcd.New(etcd.Options{
			Host: c.Host(), CA: state.CAs[topology.EtcdCA].Trusted(), Pair: pair,
			Dial: func(ctx context.Context) (net.Conn, error) { return m.Pods.DialMember(ctx, c, pod) },
		})
	}, nil
}

// examine asks a member for its state, and returns the alarms of the etcd. An alarm does not make a member unhealthy by
// itself: all members report the alarms of any, and have a majority and a leader nevertheless.
func (m *EtcdMember) examine(ctx context.Context, client *etcd.Client) []etcd.Alarm {
	status, err := client.Status(ctx)
	if err != nil {
		m.Reason = run.FirstLine(err)
		return nil
	}
	m.ID, m.DBSize, m.Learner = memberID(status.Member), status.DBSize, status.Learner
	m.Leader = status.Leader != 0 && status.Leader == status.Member
	switch err := client.Read(ctx); {
	case err != nil:
		m.Reason = run.FirstLine(err)
	case len(status.Errors) > 0:
		m.Reason = strings.Join(status.Errors, ", ")
	default:
		m.Healthy = true
	}
	return status.Alarms
}

// compare compares the reports of members about themselves with the list of members that a majority knows.
func (s *census) compare(c *topology.Component) {
	for i := range s.members {
		m := &s.members[i]
		at := slices.IndexFunc(s.known,
			func(k etcd.Member) bool { return slices.Contains(k.PeerURLs, c.PeerURL(int32(i))) })
		switch {
		case len(s.known) == 0:
		case at < 0:
			m.Healthy = false
			m.Reason = "unknown to the other members"
		case m.ID != "" && m.ID != memberID(s.known[at].ID):
			m.Healthy, m.Reason = false, "the other members know it as "+memberID(s.known[at].ID)
		default:
			m.ID = memberID(s.known[at].ID)
		}
	}
}

// blame adds the alarms to the members that they name. One that names no member is about all of them: etcd does not
// know which one is corrupt, or the member was removed. Only a member that is named as corrupt is unhealthy.
func (s *census) blame() {
	for _, alarm := range s.alarms {
		at := slices.IndexFunc(s.members, func(m EtcdMember) bool { return m.ID == memberID(alarm.Member) })
		for i := range s.members {
			if m := &s.members[i]; (at < 0 || at == i) && !slices.Contains(m.Alarms, alarm.Type) {
				m.Alarms = append(m.Alarms, alarm.Type)
			}
		}
		if at >= 0 && alarm.Type == etcd.AlarmCorrupt {
			s.members[at].Healthy, s.members[at].Reason = false, reasonCorrupt
		}
	}
	for _, m := range s.members {
		slices.Sort(m.Alarms)
	}
}

// corrupt reports whether a member may have other data than the others.
func (m EtcdMember) corrupt() bool { return slices.Contains(m.Alarms, etcd.AlarmCorrupt) }

// memberID formats an ID as etcdctl does.
func memberID(id uint64) string { return fmt.Sprintf("%x", id) }

// noMajority is the error of what needs a majority of the members.
func noMajority(c *topology.Component, s *census) error {
	var why []string
	start := ""
	for _, m := range s.members {
		if m.Healthy {
			continue
		}
		why = append(why, fmt.Sprintf("\n    %s: %s", m.Pod, m.Reason))
		if !m.corrupt() {
			start = "start the other members first: see kcpctl logs " + string(c.ID()) + "; if their data is lost, "
		}
	}
	kept := slices.ContainsFunc(s.members, func(m EtcdMember) bool { return m.hasData() && !m.corrupt() })
	return clierr.New(clierr.Failed, start+bringBack(c, kept),
		"%s has no majority: %d of %d members are healthy%s", c.ID(), s.healthy(), c.Replicas, strings.Join(why, ""))
}

// bringBack is how an etcd gets its data again after most members have lost it: from a backup, or from a member that
// still has it.
func bringBack(c *topology.Component, kept bool) string {
	if c.ID().EtcdOwner().Kind() == topology.CacheServer {
		return "run kcpctl restore BACKUP, with which the cache server begins empty, and the shards fill it"
	}
	restore := "bring it back with kcpctl restore BACKUP --shard " + c.ID().Name()
	if kept {
		return "back up what is left with kcpctl backup create --to DIR --without-keys --shard " + c.ID().Name() +
			", and " + restore
	}
	return restore
}

// Client returns a client of a member of an etcd that has everything the etcd has acknowledged: a healthy one, if
// possible not the leader, which has the most to do. Without a majority it returns a client of any member that answers,
// and the reason why it may lack the last writes. The caller closes the client.
func (m *Members) Client(ctx context.Context, c *topology.Component) (client *etcd.Client, doubt error, err error) {
	state, err := m.Store.Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.ask(ctx, state, c)
	if err != nil {
		return nil, nil, err
	}
	connect, err := m.connector(state, c)
	if err != nil {
		return nil, nil, err
	}
	best := slices.MaxFunc(s.members, func(a, b EtcdMember) int { return cmp.Compare(a.worth(), b.worth()) })
	if best.worth() == 0 {
		return nil, nil, noMajority(c, s)
	}
	client, err = connect(best.Pod)
	return client, best.doubt(), err
}

// doubt is why a copy of the data of a member may not be what the etcd has acknowledged, or nil.
func (m EtcdMember) doubt() error {
	switch {
	case m.corrupt():
		return fmt.Errorf("%s has the alarm %s: the data of %s may differ from that of its other members", m.Etcd,
			etcd.AlarmCorrupt, m.Pod)
	case !m.Healthy:
		return fmt.Errorf("%s has no majority: %s may lack the last writes", m.Etcd, m.Pod)
	}
	return nil
}

// hasData reports whether a member answers, and has all data that it has acknowledged.
func (m EtcdMember) hasData() bool { return !m.Learner && m.DBSize > 0 }

// worth orders members by how well they serve a copy of the data; 0 is one that does not.
func (m EtcdMember) worth() int {
	switch {
	case !m.hasData():
		return 0
	case !m.Healthy && m.corrupt():
		return 1
	case !m.Healthy:
		return 2
	case m.Leader:
		return 3
	}
	return 4
}
