package local

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

func (r *Runtime) addRevision(a plan.Applied) error {
	previous, err := r.historyData()
	if err != nil {
		return err
	}
	before, err := plan.DecodeHistory(previous)
	if err != nil {
		return err
	}
	after := plan.Remember(before, plan.Revision{
		Time: r.options.Now(), Version: r.options.Version, User: r.options.User, Setup: a.Setup, File: a.File,
		Only: a.Only,
	})
	if len(after) == 0 || len(before) > 0 && before[len(before)-1].Number == after[len(after)-1].Number {
		return nil
	}
	files, err := plan.EncodeHistory(after, previous)
	if err != nil {
		return err
	}
	return r.layout.writeHistory(files)
}

func (l *Layout) writeHistory(files map[string][]byte) error {
	for name, content := range files {
		if err := disk.WriteState(l.path(dirHistory, name), content); err != nil {
			return err
		}
	}
	old, err := os.ReadDir(l.path(dirHistory))
	if err != nil {
		return err
	}
	for _, f := range old {
		if _, ok := files[f.Name()]; !ok {
			if err := disk.RemoveState(l.path(dirHistory, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// History returns the setups that were applied last, oldest first.
func (r *Runtime) History(context.Context) ([]plan.Revision, error) {
	data, err := r.historyData()
	if err != nil {
		return nil, err
	}
	history, err := plan.DecodeHistory(data)
	for i := range history {
		history[i].Own = history[i].User == r.options.User
	}
	return history, err
}

func (r *Runtime) historyData() (map[string][]byte, error) {
	files, err := os.ReadDir(r.layout.path(dirHistory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data := map[string][]byte{}
	for _, f := range files {
		if data[f.Name()], err = os.ReadFile(r.layout.path(dirHistory, f.Name())); err != nil {
			return nil, err
		}
	}
	return data, nil
}
