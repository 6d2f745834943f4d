package process

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = time.Minute

// child starts a process that a test stops.
func child(t *testing.T, name string, args ...string) Identity {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	id, exit, err := Start(Command{Path: path, Args: args, Dir: t.TempDir(), Output: null})
	require.NoError(t, err)
	require.Nil(t, exit)
	t.Cleanup(func() { require.NoError(t, id.Stop(context.Background(), 0)) })
	return id
}

func TestIdentity(t *testing.T) {
	own, err := Identify(os.Getpid())
	require.NoError(t, err)
	again, err := Identify(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, own, again)
	require.True(t, own.Alive())
	require.False(t, Identity{}.Alive())
	require.False(t, Identity{PID: own.PID}.Alive(), "a PID alone identifies nothing")
	require.False(t, Identity{PID: own.PID, Start: own.Start + "0"}.Alive(), "another process had the PID")
	require.ErrorIs(t, Identity{PID: own.PID, Start: "0"}.signal(os.Kill), os.ErrProcessDone)
}

func TestZombieIsNotAlive(t *testing.T) {
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 3"}, &os.ProcAttr{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := Identify(p.Pid); return err != nil }, patience, pollInterval)
	var exit *Exit
	require.Eventually(t, func() bool { exit = Reap(p.Pid); return exit != nil }, patience, pollInterval)
	require.Equal(t, &Exit{Code: 3}, exit)
	require.Nil(t, Reap(p.Pid), "it was collected already")
}

// A record of a process that is about to start has no PID: the exit status of another child is not taken for its own.
func TestReapTakesNoOtherChild(t *testing.T) {
	other := exec.Command("sh", "-c", "exit 3")
	require.NoError(t, other.Start())
	require.Eventually(t, func() bool { _, err := Identify(other.Process.Pid); return err != nil }, patience, pollInterval)
	require.Nil(t, Reap(0))
	require.ErrorContains(t, other.Wait(), "exit status 3")
}

func TestStop(t *testing.T) {
	id := child(t, "sleep", "1000")
	require.True(t, id.Alive())
	require.NoError(t, id.Stop(t.Context(), patience))
	require.False(t, id.Alive())
	require.NoError(t, id.Stop(t.Context(), patience), "it has ended already")
	require.Nil(t, Reap(id.PID))
}

func TestStartErrorHasTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kcp")
	_, _, err := Start(Command{Path: path, Dir: "/", Output: os.Stderr})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	id := child(t, "tail", "-f", os.DevNull, filepath.Join(dir, "file"))
	// A container that looks at its host has this variable; the host's PIDs are not those of this namespace.
	t.Setenv("HOST_PROC", t.TempDir())
	// Linux closes the files of the parent before it sets the arguments, so a process that has just started has none.
	require.Eventually(t, func() bool {
		found, err := Find("tail", dir)
		return err == nil && len(found) > 0
	}, patience, pollInterval)
	for _, tc := range []struct {
		program, dir string
		want         []Identity
	}{{"tail", dir, []Identity{id}}, {"head", dir, nil}, {"tail", filepath.Join(dir, "fil"), nil}} {
		found, err := Find(tc.program, tc.dir)
		require.NoError(t, err)
		require.Equal(t, tc.want, found, "%+v", tc)
	}
}

func TestListener(t *testing.T) {
	t.Setenv("HOST_PROC", t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := int32(l.Addr().(*net.TCPAddr).Port)
	require.Equal(t, os.Getpid(), Listener(port))
	require.NoError(t, l.Close())
	require.Zero(t, Listener(port))
}

func TestRunsWithFilesOfADirectory(t *testing.T) {
	for arg, want := range map[string]bool{
		"--data=/state/demo/db":        true,
		"/state/demo/db":               true,
		"--data=/backup/state/demo/db": false,
		"--data=/state/demo":           false,
		"--data=/state/demo-2/db":      false,
	} {
		i := Info{PID: os.Getpid(), Args: []string{"/bin/kcp", "start", arg}}
		require.Equal(t, want, i.Runs("kcp", "/state/demo"), arg)
		require.False(t, i.Runs("other", "/state/demo"))
	}
}

// A container can have its own directory at the same path.
func TestProcessInAnotherContainer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	mounted := filepath.Join(t.TempDir(), "mounted")
	if err := exec.Command("unshare", "-rm", "true").Run(); err != nil {
		t.Skip("no mount namespaces: ", err)
	}
	here := child(t, "sleep", "1000")
	there := child(t, "unshare", "-rm", "sh", "-c", `mount -t tmpfs none "$1" && touch "$2" && exec sleep 1000`, "sh", dir, mounted)
	require.Eventually(t, func() bool { _, err := os.Stat(mounted); return err == nil }, patience, time.Millisecond)
	args := []string{"kcp", "--data=" + file}
	require.True(t, Info{here.PID, args}.Runs("kcp", dir))
	require.False(t, Info{there.PID, args}.Runs("kcp", dir))

	require.NoError(t, os.RemoveAll(dir)) // as for a process whose directory was deleted
	require.True(t, Info{here.PID, args}.Runs("kcp", dir))
}
