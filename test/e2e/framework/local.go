package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// Local runs a setup as processes of this machine.
type Local struct {
	// Binaries is the directory of kcp's binaries, dir the state directory of the setup.
	Binaries, Dir string
	// up has additional flags of up.
	up []string
}

func NewLocal(t *testing.T, example string, up ...string) *Setup {
	t.Helper()
	return newLocalNamed(t, example, NewName(), up...)
}

// newLocalNamed is NewLocal for a setup with a name that need not be unique: its state directory is.
func newLocalNamed(t *testing.T, example, name string, up ...string) *Setup {
	t.Helper()
	Given(t, "E2E_KCPCTL")
	home := t.TempDir()
	l := &Local{Binaries: Given(t, "E2E_KCP_BIN_DIR"), Dir: filepath.Join(home, "kcpctl", name), up: up}
	t.Cleanup(func() { // after kcpctl has removed the setup, if it can
		for _, pid := range l.processes(t) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return NewSetup(t, example, name, home, l, "KUBECONFIG="+filepath.Join(home, "no-cluster"))
}

func (l *Local) Flags(command string) []string {
	flags := []string{"--local"}
	if command == "up" {
		flags = append(flags, l.up...)
	}
	return flags
}

// files calls do for each file in the state directory, except data and logs.
func (l *Local) files(t *testing.T, do func(name string, info fs.FileInfo)) {
	t.Helper()
	err := filepath.WalkDir(l.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "data" || d.Name() == "logs"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := d.Info()
		if err == nil {
			do(strings.TrimPrefix(path, l.Dir+"/"), info)
		}
		return err
	})
	require.NoError(t, err)
}

func (l *Local) Written(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	l.files(t, func(name string, info fs.FileInfo) {
		out[name] = fmt.Sprint(info.Size(), " bytes at ", info.ModTime())
	})
	return out
}

func (l *Local) Running(t *testing.T) map[string]instance {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(l.Dir, "processes", "*.json"))
	require.NoError(t, err)
	out := map[string]instance{}
	for _, file := range records {
		var p struct {
			PID   int
			Start string
		}
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &p))
		if slices.Contains(l.processes(t), p.PID) {
			out[strings.TrimSuffix(filepath.Base(file), ".json")] = instance{
				fmt.Sprint(p.PID, " ", p.Start), func(t *testing.T) { kill(t, p.PID) },
			}
		}
	}
	return out
}

// kill kills a process and waits until it has ended. Its parent may leave it as a zombie, which has no other threads.
func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	Eventually(t.Context(), t, func() error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && !regexp.MustCompile(`(?s)\nState:\tZ.*\nThreads:\t[01]\n`).Match(status) {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

func (l *Local) Keys(t *testing.T) (authorities, readable map[string][]byte) {
	t.Helper()
	authorities, readable = map[string][]byte{}, map[string][]byte{}
	l.files(t, func(name string, info fs.FileInfo) {
		content, err := os.ReadFile(filepath.Join(l.Dir, name))
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s is readable by others", name)
		if strings.HasPrefix(name, "pki/ca/") {
			authorities[name] = content
		} else {
			readable[name] = content
		}
	})
	return authorities, readable
}

// applied compares manifests with the objects that the runtime has stored, if they have a counterpart on this machine.
func (l *Local) applied(t *testing.T, manifests string) {
	t.Helper()
	rendered := map[string]map[string]any{}
	for _, document := range regexp.MustCompile(`(?m)^---\n`).Split(manifests, -1) {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		var all map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(document), &all))
		rendered[o.Kind+"."+o.Metadata.Name+".json"] = all
	}
	entries, err := os.ReadDir(filepath.Join(l.Dir, "objects"))
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(l.Dir, "objects", e.Name()))
		require.NoError(t, err)
		var entry struct{ Object map[string]any }
		require.NoError(t, json.Unmarshal(raw, &entry))
		same := fmt.Sprint(entry.Object) == fmt.Sprint(rendered[e.Name()])
		require.True(t, same, "%s differs from what render prints", e.Name()) // Equal would print keys
	}
}

// processes returns the processes with files of the setup in their arguments, recorded or not.
func (l *Local) processes(t *testing.T) []int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var out []int
	for _, file := range all {
		raw, _ := os.ReadFile(file) // it may have ended
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil && strings.Contains(string(raw), l.Dir+"/") {
			out = append(out, pid)
		}
	}
	return out
}

func (l *Local) Left(_ context.Context, t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pid := range l.processes(t) {
		out = append(out, fmt.Sprint("process ", pid))
	}
	if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
		out = append(out, l.Dir)
	}
	return out
}
