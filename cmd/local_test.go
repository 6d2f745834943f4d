package cmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/runtime/local"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A first run on this machine does not choose ports while another one does. One that writes nothing need not wait.
func TestFirstUpWaitsWhileAnotherChoosesPorts(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "kcpctl")
	require.NoError(t, os.Mkdir(root, 0o700))
	other, err := os.Open(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	require.NoError(t, filelock.Try(other))
	file := filepath.Join(dir, "kcp.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"), 0o600))
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for dryRun, want := range map[string]error{dryRunNone: context.Canceled, dryRunClient: nil} {
		t.Run(dryRun, func(t *testing.T) {
			streams, _, errs := ui.Fake("", 0, 0)
			o := &upOptions{
				env:        &Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return dir }},
				setup:      setupFlags{file: file, local: localFlags{enabled: true}},
				applyFlags: applyFlags{dryRunFlags: dryRunFlags{dryRun}},
			}
			require.ErrorIs(t, o.run(interrupted), want)
			require.Empty(t, errs.String(), "nothing has begun")
		})
	}
}

// A run that is refused leaves what runs as it is. To stop it would fail here.
func TestForegroundStopsNothingAfterARefusal(t *testing.T) {
	state := t.TempDir()
	objects := filepath.Join(state, "demo", "objects")
	require.NoError(t, os.MkdirAll(objects, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(objects, "deployment.json"), []byte("{"), 0o600))
	layout, err := local.NewLayout(state, "demo", 0)
	require.NoError(t, err)
	top := topologytest.Build(t, "")
	s := &session{
		runtime: local.New(top, layout, local.Options{Now: time.Now}), topology: top, flags: &setupFlags{file: "kcp.yaml"},
	}
	refused := errors.New("refused")
	require.Equal(t, refused, (&upOptions{}).inForeground(t.Context(), s, refused))
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, (&upOptions{}).inForeground(interrupted, s, refused), "deployment.json")
}

// A directory that a run with --ephemeral has made is removed, whichever error has ended the run.
func TestEphemeralIsRemovedAfterEachError(t *testing.T) {
	state := t.TempDir()
	layout, err := local.NewLayout(state, "demo", 0)
	require.NoError(t, err)
	top := topologytest.Build(t, "")
	for name, failure := range map[string]error{
		"failed": errors.New("failed"), "a conflict": clierr.New(clierr.Conflict, "", "another manager owns a field"),
	} {
		t.Run(name, func(t *testing.T) {
			o := &upOptions{ephemeral: true}
			s := &session{
				runtime: local.New(top, layout, local.Options{Now: time.Now}), topology: top, layout: layout,
				flags: &setupFlags{file: "kcp.yaml"},
			}
			require.NoError(t, o.makeEphemeral(s))
			require.DirExists(t, layout.Dir)
			require.ErrorIs(t, o.remain(t.Context(), s, failure), failure)
			require.NoDirExists(t, layout.Dir)
		})
	}
}
