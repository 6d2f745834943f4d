package archive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kcpctl/kcpctl/internal/kit/filelock"
)

const (
	// stagePattern is the name of a stage. It is not the name of a backup.
	stagePattern = ".kcpctl-staging-*"
	// lockFile is in a stage, and locked by the process that uses it.
	lockFile = "lock"
)

// Stage is a directory for files that are not part of a backup yet, which only its owner can read: it has snapshots,
// which are not encrypted.
type Stage struct {
	Dir  string
	lock *os.File
}

// NewStage creates a stage: in the target if that is a directory, because there is space for a backup. It removes
// stages there whose processes have ended without Remove, such as killed ones.
func NewStage(t Target) (*Stage, error) {
	in := ""
	if d, ok := t.(directory); ok {
		if err := os.MkdirAll(d.dir, 0o700); err != nil {
			return nil, explain(err)
		}
		in = d.dir
		removeAbandoned(in)
	}
	return newStage(in)
}

// NewScratch returns a stage for what only reads the target. If kcpctl cannot write to the target, it is a temporary
// directory.
func NewScratch(t Target) (*Stage, error) {
	s, err := NewStage(t)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return newStage("")
	}
	return s, err
}

func newStage(in string) (*Stage, error) {
	dir, err := os.MkdirTemp(in, stagePattern)
	if err != nil {
		return nil, explain(err)
	}
	lock, err := filelock.Open(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, explain(errors.Join(err, os.RemoveAll(dir)))
	}
	return &Stage{dir, lock}, nil
}

// Remove removes the stage. Errors do not matter: the next stage in the same place removes what is left.
func (s *Stage) Remove() {
	_ = os.RemoveAll(s.Dir)
	_ = s.lock.Close()
	_ = os.RemoveAll(s.Dir) // Windows keeps open files
}

// removeAbandoned removes the stages in a directory that no process has locked. A stage without a lock file is kept: it
// may be one that another process is creating.
func removeAbandoned(in string) {
	all, _ := filepath.Glob(filepath.Join(in, stagePattern))
	for _, dir := range all {
		lock, err := filelock.Open(filepath.Join(dir, lockFile), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		(&Stage{dir, lock}).Remove()
	}
}
