//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// missesImage brings up a setup whose image does not exist. While that run waits, another is kept out.
func missesImage(t *testing.T, s *setup) {
	s.write(t, s.text+"spec: {image: {tag: no-such-tag}}\n")
	up := s.command("up")
	cmd, cancel := up.prepare(t.Context())
	defer cancel()
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, cmd.Start())

	host, err := os.Hostname()
	require.NoError(t, err)
	pull := regexp.MustCompile("ErrImagePull|ImagePullBackOff")
	named := false
	var told strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		told.WriteString(lines.Text() + "\n")
		if named || !pull.MatchString(lines.Text()) {
			continue
		}
		named = true
		t.Logf("named after %.1fs: %s", time.Since(began).Seconds(), lines.Text())
		s.kcpctl(t, "up").refused(t, 4, "another run is in progress", fmt.Sprintf("process %d of ", cmd.Process.Pid), host,
			"Lease/"+s.name+"/"+s.name+"-lock", "hint: wait until that run has finished")
	}
	require.Error(t, cmd.Wait())
	require.True(t, named, told.String())
	result{line: up.String(), stderr: told.String(), code: cmd.ProcessState.ExitCode()}.
		refused(t, 3, "kcpctl: root-shard: not ready", "no-such-tag", "hint: ")
	require.Equal(t, 3, s.kcpctl(t, "status").code)
}
