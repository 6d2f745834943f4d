package long

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterMinimal runs examples/minimal.yaml with an image that does not exist, and corrects it.
func TestClusterMinimal(t *testing.T) {
	s := framework.NewCluster(t, "minimal")
	framework.Step(t, "an image that does not exist", func(t *testing.T) { missesImage(t, s) })
	framework.Step(t, "the corrected file", func(t *testing.T) {
		s.Write(t, s.Text)
		require.Contains(t, s.Up(t).Stderr, "canary done")
		framework.IsReady(t, s)
		framework.ChangesNothing(t, s)
	})
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

// missesImage brings up a setup whose image does not exist. While that run waits, a second run must be refused.
func missesImage(t *testing.T, s *framework.Setup) {
	s.Write(t, s.Text+"spec: {image: {tag: no-such-tag}}\n")
	up := s.Command("up")
	cmd, cancel := up.Prepare(t.Context())
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
		s.Kcpctl(t, "up").Refused(t, 4, fmt.Sprint(cmd.Process.Pid), host,
			"Lease/"+s.Name+"/"+s.Name+"-lock", "hint: ")
	}
	require.Error(t, cmd.Wait())
	require.True(t, named, printed.String())
	framework.Result{Line: up.String(), Stderr: printed.String(), Code: cmd.ProcessState.ExitCode()}.
		Refused(t, 3, "root-shard", "no-such-tag", "hint: ")
	require.Equal(t, 3, s.Kcpctl(t, "status").Code)
}
