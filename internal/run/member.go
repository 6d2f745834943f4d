package run

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/etcd"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// MemberRuntime is what runs the members of managed etcds: pods with volumes. On this machine there are none.
type MemberRuntime interface {
	// DialMember connects to the client port of a member's pod.
	DialMember(ctx context.Context, c *topology.Component, pod string) (net.Conn, error)
	// MemberStart returns the variables that SetMemberStart has set: none if they are as they were rendered.
	MemberStart(ctx context.Context, c *topology.Component) (map[string]string, error)
	// SetMemberStart replaces variables with which a member of an etcd starts that has no data. Nil takes them back.
	SetMemberStart(ctx context.Context, c *topology.Component, env map[string]string) error
	// EmptyMember deletes a member's pod with its volume, which will be made again, and waits until both are gone.
	EmptyMember(ctx context.Context, c *topology.Component, pod string) error
}

// EtcdMember is a member of a managed etcd, as it is seen from outside.
type EtcdMember struct {
	Etcd topology.ID `json:"etcd"`
	Pod  string      `json:"pod"`
	// ID is empty if the others do not know it.
	ID      string `json:"id,omitempty"`
	Healthy bool   `json:"healthy"`
	Leader  bool   `json:"leader"`
	Learner bool   `json:"learner"`
	// DBSize is the size of its database in bytes.
	DBSize int64 `json:"dbSize,omitempty"`
	// Reason says why it is not healthy.
	Reason string `json:"reason,omitempty"`
}

// Members looks at the members of managed etcds.
type Members struct {
	Topology *topology.Topology
	Runtime  Runtime
	Pods     MemberRuntime
	Now      func() time.Time
}

// census is what is known of an etcd at some moment.
type census struct {
	// members are in the order of their pods.
	members []EtcdMember
	// known are the members that a majority knows. Without one it is empty, and silence says why.
	known   []etcd.Member
	silence error
}

// healthy counts the members that are.
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
	state, err := m.Runtime.Store().Load(ctx)
	if err != nil {
		return nil, err
	}
	s, err := m.ask(ctx, state, c)
	if err != nil {
		return nil, err
	}
	return s.members, nil
}

// ask asks all members of an etcd at once.
func (m *Members) ask(ctx context.Context, state *pki.State, c *topology.Component) (*census, error) {
	connect, err := m.connector(state, c)
	if err != nil {
		return nil, err
	}
	s := &census{members: make([]EtcdMember, c.Replicas)}
	lists := make([][]etcd.Member, c.Replicas)
	silences := make([]error, c.Replicas)
	var g errgroup.Group
	for i := range s.members {
		s.members[i] = EtcdMember{Etcd: c.ID(), Pod: c.Member(int32(i))}
		g.Go(func() error {
			client, err := connect(s.members[i].Pod)
			if err != nil {
				return err
			}
			defer client.Close()
			s.members[i].examine(ctx, client)
			lists[i], silences[i] = client.Members(ctx)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	for i := range lists {
		if silences[i] == nil && (s.known == nil || s.members[i].Leader) {
			s.known = lists[i]
		} else if silences[i] != nil {
			s.silence = silences[i]
		}
	}
	s.compare(c)
	return s, nil
}

// connector makes clients of members, with a certificate of kcpctl's own.
func (m *Members) connector(state *pki.State, c *topology.Component) (func(pod string) (*etcd.Client, error), error) {
	pair, err := pki.Mint(state, pki.MintSpec{
		CN: pki.CNSelf, CA: pki.EtcdCA, Hosts: []string{c.ClientHost()}, Algorithm: v1alpha1.KeyECDSAP256, Validity: selfValidity,
	}, m.Now())
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", c.ID(), err)
	}
	return func(pod string) (*etcd.Client, error) {
		return etcd.New(etcd.Options{
			Host: c.Host(), CA: state.CAs[pki.EtcdCA].Trusted(), Pair: pair,
			Dial: func(ctx context.Context) (net.Conn, error) { return m.Pods.DialMember(ctx, c, pod) },
		})
	}, nil
}

// examine asks a member how it is.
func (m *EtcdMember) examine(ctx context.Context, client *etcd.Client) {
	status, err := client.Status(ctx)
	if err != nil {
		m.Reason = firstLine(err)
		return
	}
	m.ID, m.DBSize, m.Learner = memberID(status.Member), status.DBSize, status.Learner
	m.Leader = status.Leader != 0 && status.Leader == status.Member
	switch err := client.Read(ctx); {
	case err != nil:
		m.Reason = firstLine(err)
	case len(status.Errors) > 0:
		m.Reason = strings.Join(status.Errors, ", ")
	default:
		m.Healthy = true
	}
}

// compare adds what the others know of a member to what it says itself.
func (s *census) compare(c *topology.Component) {
	for i := range s.members {
		m := &s.members[i]
		at := slices.IndexFunc(s.known, func(k etcd.Member) bool { return slices.Contains(k.PeerURLs, c.PeerURL(int32(i))) })
		switch {
		case len(s.known) == 0:
		case at < 0:
			m.Healthy, m.Reason = false, "the others do not know it"
		case m.ID != "" && m.ID != memberID(s.known[at].ID):
			m.Healthy, m.Reason = false, "the others know it as "+memberID(s.known[at].ID)
		default:
			m.ID = memberID(s.known[at].ID)
		}
	}
}

// memberID writes an ID as etcdctl does.
func memberID(id uint64) string { return fmt.Sprintf("%x", id) }

// noMajority refuses what needs a majority of the members.
func noMajority(c *topology.Component, s *census) error {
	var why []string
	for _, m := range s.members {
		if !m.Healthy {
			why = append(why, fmt.Sprintf("\n    %s: %s", m.Pod, m.Reason))
		}
	}
	return clierr.New(clierr.Failed, "start the others first: kcpctl logs "+string(c.ID())+
		"; if their data is lost too, restore a snapshot (etcdutl snapshot restore)",
		"%s has no majority: %d of %d members are healthy%s", c.ID(), s.healthy(), c.Replicas, strings.Join(why, ""))
}
