package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	// Alarms are the alarms of the whole etcd, as this member knows them.
	Alarms []Alarm
	// Errors are further problems of the member, such as a missing leader.
	Errors []string
}

// The types of alarms.
const (
	AlarmNoSpace = "NOSPACE"
	AlarmCorrupt = "CORRUPT"
)

// Alarm makes all members of an etcd refuse writes until it is disarmed. They still elect a leader, and read.
type Alarm struct {
	Type string
	// Member is the ID of the member that has raised it or that is corrupt, or 0 if etcd does not know which one is.
	Member uint64
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
			s.addError(string(content))
		case 10:
			s.Learner = number != 0
		}
		return nil
	})
}

// addError adds an error of a status: etcd reports alarms as text (etcd: server/etcdserver/api/v3rpc/maintenance.go).
func (s *Status) addError(text string) {
	var a Alarm
	for _, word := range strings.Fields(text) {
		switch name, value, _ := strings.Cut(word, ":"); name {
		case "alarm":
			a.Type = value
		case "memberID":
			a.Member, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	if a.Type == "" {
		s.Errors = append(s.Errors, text)
		return
	}
	s.Alarms = append(s.Alarms, a)
}

// DisarmCorrupt disarms the alarm that the data of a member is corrupt.
func (c *Client) DisarmCorrupt(ctx context.Context, member uint64) error {
	const deactivate, corrupt = 2, 2
	_, err := c.call(ctx, "Maintenance/Alarm",
		appendUint(appendUint(appendUint(nil, 1, deactivate), 2, member), 3, corrupt))
	return err
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
