package record

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// CheckWhole fails if a restore was interrupted: servers that start now would find the data of some shards missing, and
// begin without it.
func (r *Record) CheckWhole() error {
	if r == nil || r.Restoring == "" {
		return nil
	}
	return clierr.New(clierr.Failed,
		"run kcpctl restore again, with the same backup: it continues; if that one cannot be used any more, restore "+
			"another one with "+risk.OtherBackup.Of(r.Restoring),
		"a restore of backup %s has not finished", r.Restoring)
}

// CheckRestored fails if the record is older than the one that was written last. The record and the PKI are often in
// Secrets of one namespace, so that a restore of Secrets brings both back together, and they fit together. Each place
// of an installation therefore notes the serial of the record outside of Secrets.
func (r *Record) CheckRestored() error {
	if err := r.CheckWhole(); err != nil {
		return err
	}
	if !r.Restored() {
		return nil
	}
	is := fmt.Sprintf("it is number %d", r.Serial)
	if r.Serial == 0 {
		is = "it has no number, so an earlier kcpctl has written it"
	}
	return clierr.New(clierr.Failed,
		"restore the latest record and PKI; if they are lost, compare what runs with kcpctl diff, and pass "+
			risk.RestoredRecord.Flag()+" to kcpctl up: see Restored Secrets in docs/certificates.md",
		"the record of installation %s is older than what was applied last: %s, and number %d was applied; "+
			"it was restored from a backup, probably with the PKI; nothing was changed",
		r.Installation, is, r.Witnessed)
}

// Restored reports whether the record is older than the one that was written last.
func (r *Record) Restored() bool { return !r.Empty() && r.Serial < r.Witnessed }

// AcceptRestored makes the record the latest one, whatever was noted.
func (r *Record) AcceptRestored() { r.Serial = max(r.Serial, r.Witnessed) }

// Unnoted reports whether the next run must write the record even if its content does not change: an earlier kcpctl has
// written it, or a place has not noted its serial.
func (r *Record) Unnoted() bool {
	return !r.Empty() && (r.Serial == 0 || r.Unwitnessed || r.Restored())
}

// Numbered returns the record with its serial. previous is the record that it replaces.
func (r *Record) Numbered(previous *Record) *Record {
	out := r.clone()
	switch {
	case previous.Empty():
		out.Serial++
	case out.Restored(): // no run has accepted it
		out.Serial = previous.Serial
	case previous.Serial > 0 && out.Serial <= previous.Serial && out.Equal(previous):
		out.Serial = previous.Serial
	default:
		out.Serial = max(out.Serial, previous.Serial) + 1
	}
	return out
}

// Witness adds what a place has noted: a serial, or zero for nothing.
func (r *Record) Witness(serial int64) {
	r.Witnessed = max(r.Witnessed, serial)
	r.Unwitnessed = r.Unwitnessed || serial != r.Serial
}

// Identity returns the identity of the installation, for a PKI that has lost it. It is empty if the installation has no
// ID besides its name. setup is the name of the setup: the prefix in external etcds was "/" and this name before
// installations had an ID.
func (r *Record) Identity(setup string) pki.Installation {
	if r.Empty() || r.Installation == setup {
		return pki.Installation{}
	}
	out := pki.Installation{ID: r.Installation, EtcdPrefix: "/" + r.Installation}
	for id, d := range r.Data {
		if strings.HasSuffix(d.Etcd, " below /"+setup+"/"+id.ShortName()) {
			out.EtcdPrefix = "/" + setup
		}
	}
	return out
}
