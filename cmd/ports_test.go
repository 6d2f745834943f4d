package cmd

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// A port that another process takes after it was chosen is replaced, as long as nothing is started.
func TestPortsAreChosenAgain(t *testing.T) {
	text, err := examples.Read("minimal")
	require.NoError(t, err)
	file, err := setup.Load(setup.Stdin, strings.NewReader(string(text)))
	require.NoError(t, err)
	streams, _, errs := ui.Fake("", 0, 0)
	home := t.TempDir()
	env := &Env{Streams: streams, Now: time.Now, Getenv: func(k string) string { return map[string]string{"HOME": home}[k] }}
	flags := &setupFlags{file: setup.Stdin, local: localFlags{enabled: true}}
	s, err := (&session{env: env, flags: flags, reporter: &reporter{env: env}}).with(file)
	require.NoError(t, err)
	require.NoError(t, s.connectToApply(t.Context()))
	defer func() { s.close() }()
	again, err := s.chosenAgain(t.Context())
	require.NoError(t, err)
	require.False(t, again, "all ports are free")

	first := s.topology.FrontProxies()[0].ExternalURL
	l, err := net.Listen("tcp", strings.TrimPrefix(first, "https://"))
	require.NoError(t, err)
	defer l.Close()
	again, err = s.chosenAgain(t.Context())
	require.NoError(t, err)
	require.True(t, again)
	require.NotEqual(t, first, s.topology.FrontProxies()[0].ExternalURL)
	require.Contains(t, errs.String(), "other ports were chosen")
}
