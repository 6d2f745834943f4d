package inventory

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/format"
)

// KnownCluster is a cluster that this machine has applied a setup to.
type KnownCluster struct {
	Placement
	// Asked is the context that the setup file names; empty is the current one.
	Asked string `json:"asked,omitempty"`
}

func knownCluster(cl *cluster.Client) KnownCluster {
	return KnownCluster{Placement: PlacementOf(cl), Asked: cl.Cluster.Context}
}

func (k KnownCluster) equal(o KnownCluster) bool {
	return k.Asked == o.Asked && k.Placement.Equal(o.Placement)
}

// Is reports whether a cluster has the same name, namespace and context in the setup file. It may be another cluster
// now.
func (k KnownCluster) Is(cl *cluster.Client) bool {
	return k.SameName(PlacementOf(cl)) && k.Asked == cl.Cluster.Context
}

// KnownClusters are the clusters that this machine has applied a setup to, in a file of the state directory. They
// reveal that the context that a setup names, or the current one, leads to another cluster than before. They are best
// effort: if the file cannot be read or written, a run reports that once and continues.
type KnownClusters struct {
	// file is empty if this machine keeps nothing.
	file   string
	notify cluster.Notify
	mu     sync.Mutex // held while the file is changed
	once   sync.Once
}

// NewKnownClusters returns the known clusters of a setup. The state directory does not have to exist; if it is empty,
// nothing is kept.
func NewKnownClusters(stateDir, setup string, notify cluster.Notify) *KnownClusters {
	k := &KnownClusters{notify: notify}
	if stateDir != "" {
		k.file = filepath.Join(stateDir, "clusters", setup+".json")
	}
	return k
}

// Load returns the known clusters: none if the file cannot be read. It fails if the content is invalid, because that
// may be a warning lost.
func (k *KnownClusters) Load() ([]KnownCluster, error) {
	all, err := k.read()
	if k.isFileError(err) {
		return nil, nil
	}
	return all, err
}

// Remember adds clusters.
func (k *KnownClusters) Remember(clusters []*cluster.Client) error {
	return k.change(func(all []KnownCluster) []KnownCluster {
		for _, cl := range clusters {
			i := slices.IndexFunc(all, func(o KnownCluster) bool { return o.Is(cl) })
			switch {
			case cl.UID == "":
			case i < 0:
				all = append(all, knownCluster(cl))
			default:
				all[i] = knownCluster(cl)
			}
		}
		return all
	})
}

// Forget removes a cluster. One that the setup has left is reached with the context of its placement, which the setup
// file may not have named.
func (k *KnownClusters) Forget(cl *cluster.Client) error {
	at := PlacementOf(cl)
	return k.change(func(all []KnownCluster) []KnownCluster {
		return slices.DeleteFunc(all,
			func(o KnownCluster) bool { return o.Is(cl) || o.SameName(at) && o.SamePlace(at) })
	})
}

// change changes the file if that makes a difference.
func (k *KnownClusters) change(do func([]KnownCluster) []KnownCluster) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, err := k.read()
	switch {
	case k.file == "", k.isFileError(err): // a file that cannot be read is not replaced either
		return nil
	case err != nil:
		return err
	}
	previous := slices.Clone(all)
	if all = do(all); !slices.EqualFunc(previous, all, KnownCluster.equal) {
		k.report(k.write(all))
	}
	return nil
}

func (k *KnownClusters) read() ([]KnownCluster, error) {
	if k.file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []KnownCluster
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, clierr.New(clierr.Failed,
			"delete the file: it only lists the clusters that the setup was applied to",
			"read %s: %w", k.file, err)
	}
	return all, nil
}

func (k *KnownClusters) write(all []KnownCluster) error {
	if len(all) == 0 {
		if err := os.Remove(k.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	previous, err := os.ReadFile(k.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	raw, err := json.Marshal(all)
	if err == nil {
		raw, err = format.Keep[[]KnownCluster](previous, raw)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(k.file, append(raw, '\n'), 0o600)
}

// isFileError reports whether an error is one of the file system. Then the user is told.
func (k *KnownClusters) isFileError(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); !ok {
		return false
	}
	k.report(err)
	return true
}

// report tells the user once why the clusters are not known.
func (k *KnownClusters) report(err error) {
	if err == nil {
		return
	}
	k.once.Do(func() {
		k.notify("cannot keep the list of clusters on this machine, so a context that leads to another cluster is "+
			"not noticed: %v", err)
	})
}
