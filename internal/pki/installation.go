package pki

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Installation identifies one kcp among all that share a setup's name. It is made together with the authorities, and kept
// and exported with them.
type Installation struct {
	// ID is unique, and never changes: demo-x7k2m9qd.
	ID string `json:"id"`
	// EtcdPrefix is what the default prefixes of shards in an external etcd begin with.
	EtcdPrefix string `json:"etcdPrefix"`
}

// keyInstallation is the key of the installation in an encoded PKI.
const keyInstallation = "installation.json"

// newInstallation identifies a setup's new installation.
func newInstallation(setup string) Installation {
	id := setup + "-" + strings.ToLower(rand.Text()[:8])
	return Installation{ID: id, EtcdPrefix: "/" + id}
}

// ensureInstallation identifies an installation that has no identity yet. One that an earlier kcpctl has made keeps the prefix
// in external etcds that it was given then.
func (e *ensurer) ensureInstallation() {
	if e.result.State.Installation.ID != "" {
		return
	}
	e.result.State.Installation = newInstallation(e.t.Name)
	if slices.ContainsFunc(e.table, func(c Cert) bool { _, ok := e.result.State.Leaves[c.Key()]; return ok }) {
		e.result.State.Installation.EtcdPrefix = "/" + e.t.Name
	}
}

func (i Installation) encode() []byte {
	if i.ID == "" {
		return nil
	}
	raw, err := json.Marshal(i)
	if err != nil {
		panic("encode two strings: " + err.Error())
	}
	return raw
}

func decodeInstallation(raw []byte) (i Installation, err error) {
	if len(raw) == 0 {
		return i, nil
	}
	if err = json.Unmarshal(raw, &i); err == nil && (i.ID == "" || !strings.HasPrefix(i.EtcdPrefix, "/")) {
		err = fmt.Errorf("its ID or its etcd prefix is missing")
	}
	return i, err
}
