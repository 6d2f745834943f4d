package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
)

// hidden is the reason of a component whose process kcpctl cannot see: it runs in another container or on another
// machine that has the same state directory. etcd locks its database as long as it runs, and that can be seen.
const hidden = "its database is open in a process that kcpctl cannot see"

// closeTimeout is how long the kernel may take to close the files of a process that has just died.
const closeTimeout = 3 * time.Second

// database returns the path of the database of a server's embedded etcd.
func (l *Layout) database(object string) string {
	return filepath.Join(topology.ComponentDir(l.Dir, object), "data", dirEtcd, "member", "snap", "db")
}

// lockDatabase locks a database as etcd does. It fails with filelock.ErrHeld if a process has it open.
func lockDatabase(path string) (*os.File, error) { return filelock.Open(path, os.O_RDWR, 0) }

// isOpen reports whether a process has a database open, as far as that can be seen.
func isOpen(path string) bool {
	f, err := lockDatabase(path)
	if err == nil {
		_ = f.Close()
	}
	return errors.Is(err, filelock.ErrHeld)
}

// checkHidden fails if a process that kcpctl cannot see has a database of the setup open.
func (l *Layout) checkHidden(ctx context.Context) error {
	objects, err := os.ReadDir(topology.ComponentDir(l.Dir, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, object := range objects {
		path := l.database(object.Name())
		if !isOpen(path) {
			continue
		}
		seen, err := l.runsHere(object.Name())
		if err == nil && !seen {
			err = awaitClosed(ctx, path)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// elsewhere is the reason of a component whose process has its data in another file than the next one would.
const elsewhere = "its database was moved to another disk, or replaced, while it runs"

// usesOther reports whether a process that was ready does not have the database of the workload open, so that it has
// another file open: its directory was copied to another disk and deleted, or an earlier copy was put in its place.
func (l *Layout) usesOther(w *workload, rec *processRecord) bool {
	if w.etcdDir() == "" || rec == nil || rec.Hash != w.hash {
		return false
	}
	f, err := lockDatabase(l.database(w.name))
	if err != nil { // it has it open, or there is none
		return false
	}
	_ = f.Close()
	return rec.Alive()
}

// checkElsewhere fails if a process has another database open than the one in the state directory: it is the only one
// that has the latest data, so nothing may stop it.
func (s *supervisor) checkElsewhere(ctx context.Context) error {
	all, err := s.layout.workloads()
	if err != nil {
		return err
	}
	for id, w := range all {
		_, rec, err := s.layout.locate(w)
		if err != nil {
			return err
		}
		// Before it is ready, it may not have opened the database yet.
		if s.layout.usesOther(w, rec) && s.isReady(ctx, w) && s.layout.usesOther(w, rec) {
			return clierr.New(clierr.Failed, fmt.Sprintf("run kcpctl backup create, which saves what the process has; "+
				"then stop it with kill %d, run kcpctl up, and restore the backup", rec.PID),
				"%s: %s, and %s is older; nothing was changed", id, elsewhere, s.layout.database(w.name))
		}
	}
	return nil
}

// runsHere reports whether kcpctl sees the process of an object.
func (l *Layout) runsHere(object string) (bool, error) {
	e, err := l.entry(kindDeployment, object)
	if err != nil || e == nil {
		return false, err
	}
	w, err := l.workload(e.Object)
	if err != nil {
		return false, err
	}
	live, _, err := l.locate(w)
	return len(live) > 0, err
}

// awaitClosed waits until no process has a database open.
func awaitClosed(ctx context.Context, path string) error {
	waiting, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	f, err := filelock.Wait(waiting, func() (*os.File, error) { return lockDatabase(path) })
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case ctx.Err() == nil && waiting.Err() != nil:
		return clierr.New(clierr.Failed, "run kcpctl in the container, or on the machine, where kcp was started",
			"a process that kcpctl cannot see has the database %s open; nothing was changed", path)
	}
	return err
}
