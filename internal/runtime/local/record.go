package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// Record returns the record of the installation on this machine.
func (r *Runtime) Record(context.Context) (*record.Record, error) {
	rec, _, err := r.readRecord()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(r.layout.path(fileSerial))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	serial, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10,
		64) // whatever else is there is as good as nothing
	rec.Witness(serial)
	return rec, rec.CheckInstallation(r.topology.Installation(), r.Where())
}

// Moved fails if processes run with the files of the setup, and the state directory knows nothing about them: it was
// moved or deleted. Another installation in its place would stop them, and leave their data behind.
func (r *Runtime) Moved() error {
	rec, _, err := r.readRecord()
	if err != nil || !rec.Empty() {
		return nil // commands that need the record report the error
	}
	known, err := filepath.Glob(r.layout.path(dirProcesses, "*.json"))
	if err != nil || len(known) > 0 {
		return err
	}
	all, err := process.List()
	if err != nil {
		return err
	}
	var pids []string
	for _, p := range all {
		if slices.ContainsFunc(r.topology.Running(), func(c *topology.Component) bool {
			return c.Kind.Program() != "" && p.Runs(c.Kind.Program(), topology.ComponentDir(r.layout.Dir, c.Object()))
		}) {
			pids = append(pids, strconv.Itoa(p.PID))
		}
	}
	if len(pids) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed,
		"move the directory back; or, if the data is lost for good, stop the processes with kill "+
			strings.Join(pids, " ")+", and rerun the command",
		"kcp %q runs (pid %s), but its state directory %s was moved or deleted",
		r.layout.Setup, strings.Join(pids, ", "), r.layout.Dir)
}

// mayWrite fails if this machine has another installation than the one that the setup file names, or one that only a
// later kcpctl may write.
func (r *Runtime) mayWrite(ctx context.Context) error {
	rec, err := r.Record(ctx)
	if err != nil {
		return err
	}
	return rec.Writable()
}

func (r *Runtime) readRecord() (rec *record.Record, raw []byte, err error) {
	raw, err = os.ReadFile(r.layout.path(fileRecord))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	rec, err = record.Decode(raw)
	return rec, raw, err
}

// writeRecord writes the record, and then its serial into a file that a backup of the record and the PKI does not have.
func (r *Runtime) writeRecord(rec *record.Record) error {
	if rec.Empty() {
		return nil
	}
	previous, raw, err := r.readRecord()
	if err != nil {
		return err
	}
	rec = rec.Numbered(previous)
	if raw, err = rec.Encode(r.options.Version, raw); err != nil {
		return err
	}
	if err := disk.WriteState(r.layout.path(fileRecord), raw); err != nil {
		return err
	}
	if rec.Serial < rec.Witnessed {
		return nil // a restored record that no run has accepted
	}
	return disk.WriteState(r.layout.path(fileSerial), []byte(strconv.FormatInt(rec.Serial, 10)+"\n"))
}
