package pki

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	// maxCommonName is the maximum length of a common name in a certificate (RFC 5280, ub-common-name).
	maxCommonName = 64
	// randomLength is the length of the random part of names.
	randomLength = 8
)

// User returns the common name of the certificate with which a component uses kcp as a user does. It is empty for
// components that do not. After EndUsers it is another one than before.
func (s *State) User(c *topology.Component) string {
	user, last := c.User(), ""
	if s != nil {
		last = s.Users[c.ID()]
	}
	if user == "" || last == "" {
		return user
	}
	return user[:min(len(user), maxCommonName-len(last)-1)] + ":" + last
}

// EndUsers gives components that have lost their rights in kcp other users, for when components with their IDs get
// rights again: the certificates of the previous users remain valid until they expire.
func (s *State) EndUsers(ids ...topology.ID) {
	users := maps.Clone(s.Users)
	if users == nil {
		users = map[topology.ID]string{}
	}
	for _, id := range ids {
		users[id] = newRandom()
	}
	s.Users = users
}

// newRandom returns the random part of a name.
func newRandom() string { return strings.ToLower(rand.Text()[:randomLength]) }

// certificates returns the certificates of a setup with the users of the state.
func (s *State) certificates(t *topology.Topology) []Cert {
	all := Table(t)
	for i, c := range all {
		if user := s.User(t.Component(c.Component)); user != "" {
			all[i].CN = user
		}
	}
	return all
}

// encodeUsers returns the users as a part of an encoded PKI, or nil if there are none.
func encodeUsers(users map[topology.ID]string) []byte {
	if len(users) == 0 {
		return nil
	}
	raw, err := json.Marshal(users)
	if err != nil {
		panic("encode a map of strings: " + err.Error())
	}
	return raw
}

func decodeUsers(raw []byte) (users map[topology.ID]string, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &users); err != nil {
		return nil, err
	}
	valid := regexp.MustCompile(`^[a-z0-9]{1,32}$`)
	for id, last := range users {
		if !valid.MatchString(last) {
			return nil, fmt.Errorf("the user of %s is not valid", id)
		}
	}
	return users, nil
}

// importUsers adds the users of another state to those that the state does not have.
func importUsers(to, from *State) map[topology.ID]string {
	out := map[topology.ID]string{}
	maps.Copy(out, from.Users)
	maps.Copy(out, to.Users)
	if len(out) == 0 {
		return nil
	}
	return out
}
