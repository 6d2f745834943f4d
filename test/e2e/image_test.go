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

// missesImage brings up a setup whose image does not exist. While that run waits, a second run must be refused.
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
	var printed strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		printed.WriteString(lines.Text() + "\n")
		if named || !pull.MatchString(lines.Text()) {
			continue
		}
		named = true
		t.Logf("named after %.1fs: %s", time.Since(began).Seconds(), lines.Text())
		s.kcpctl(t, "up").refused(t, 4, fmt.Sprint(cmd.Process.Pid), host,
			"Lease/"+s.name+"/"+s.name+"-lock", "hint: ")
	}
	require.Error(t, cmd.Wait())
	require.True(t, named, printed.String())
	result{line: up.String(), stderr: printed.String(), code: cmd.ProcessState.ExitCode()}.
		refused(t, 3, "root-shard", "no-such-tag", "hint: ")
	require.Equal(t, 3, s.kcpctl(t, "status").code)
}
