package etcd

import (
	"context"
	"fmt"
)

// Member is a member as the cluster knows it.
type Member struct {
	ID uint64
	// Name is empty for a member that was added and has not started yet.
	Name     string
	PeerURLs []string
	Learner  bool
}

// Status is the state that a member reports.
type Status struct {
	// Member is its ID, and Leader the ID of the leader, or 0 if it knows no leader.
	Member, Leader uint64
	Version        string
	DBSize         int64
	Learner        bool
	// Errors are its alarms.
	Errors []string
}

// Members returns the members. It fails without a quorum.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	answer, err := c.call(ctx, "Cluster/MemberList", appendBool(nil, 1, true))
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var out []Member
	err = fields(answer, func(field int, _ uint64, content []byte) error {
		if field != 2 {
			return nil
		}
		m, err := memberOf(content)
		out = append(out, m)
		return err
	})
	return out, err
}

func memberOf(b []byte) (Member, error) {
	var m Member
	err := fields(b, func(field int, number uint64, content []byte) error {
		switch field {
		case 1:
			m.ID = number
		case 2:
			m.Name = string(content)
		case 3:
			m.PeerURLs = append(m.PeerURLs, string(content))
		case 5:
			m.Learner = number != 0
		}
		return nil
	})
	return m, err
}

// Status returns the state of the member itself, also without a quorum.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	answer, err := c.call(ctx, "Maintenance/Status", nil)
	if err != nil {
		return s, err
	}
	return s, fields(answer, func(field int, number uint64, content []byte) error {
		switch field {
		case 1:
			return fields(content, func(field int, number uint64, _ []byte) error {
				if field == 2 {
					s.Member = number
				}
				return nil
			})
		case 2:
			s.Version = string(content)
		case 3:
			s.DBSize = int64(number)
		case 4:
			s.Leader = number
		case 8:
			s.Errors = append(s.Errors, string(content))
		case 10:
			s.Learner = number != 0
		}
		return nil
	})
}

// Read makes a linearizable read, as clients do. It succeeds if the member is connected to a quorum and has caught up.
func (c *Client) Read(ctx context.Context) error {
	_, err := c.call(ctx, "KV/Range", appendBytes(nil, 1, "health"))
	return err
}

// Remove removes a member. It cannot rejoin with this ID.
func (c *Client) Remove(ctx context.Context, id uint64) error {
	_, err := c.call(ctx, "Cluster/MemberRemove", appendUint(nil, 1, id))
	return err
}

// Add adds a voting member, at a peer URL that no other member has.
func (c *Client) Add(ctx context.Context, peerURL string) error {
	_, err := c.call(ctx, "Cluster/MemberAdd", appendBytes(nil, 1, peerURL))
	return err
}
