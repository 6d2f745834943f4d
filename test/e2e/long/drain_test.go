package long

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

func TestLocalDrain(t *testing.T) {
	framework.TestDrain(t, framework.NewLocal(t, "minimal"), "embedded: {ephemeral: true}", 1)
}

// The run that has read the originals is killed, and then the shard with the copies is restarted and has forgotten
// them.
func TestLocalDrainInterrupted(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	s.Text = fmt.Sprintf(framework.Drained, s.Name, "embedded: {}", 1)
	s.Write(t, s.Text)
	s.Up(t)
	create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.Stdin = fmt.Sprintf(framework.DrainedWorkspace, "eu", "region: eu")
	create.Run(t.Context(), t).OK(t)
	s.Kubectl(t, "wait", "workspaces", "eu", "--for=jsonpath={.status.phase}=Ready", "--timeout=5m").OK(t)
	s.Write(t, strings.Replace(s.Text, "labels: {tier: a}}", "labels: {tier: a, region: eu}}", 1))
	s.Up(t)
	w := framework.StartWriters(t, s, []string{"eu"})
	w.WriteMore(t, 200)
	migration := func(path string) (value string) {
		framework.Eventually(t.Context(), t, func() (err error) {
			value, err = s.Kubectl(t, "get", "logicalclustermigrations", "--output", "jsonpath={.items[*]."+path+"}").Output()
			return err
		})
		return value
	}
	framework.Step(t, "a drain is killed while kcp copies", func(t *testing.T) {
		r := s.Command("remove-shard", "alpha", "--drain", "--yes", "--output", "json").
			During(t, 1, regexp.MustCompile(`copying \d+ entries`), func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Kill()) })
		require.Equal(t, -1, r.Code, r.Stderr)
		framework.Eventually(t.Context(), t, func() error {
			if phase := migration("status.phase"); phase != "DestinationFinalize" {
				return fmt.Errorf("the migration is in phase %s", phase)
			}
			return nil
		})
	})
	framework.Step(t, "the shard with the copy is restarted", func(t *testing.T) {
		s.Running(t)[s.Name+"-shard-beta"].Kill(t)
		s.Up(t)
		require.Equal(t, "DestinationFinalize", migration("status.phase"))
	})
	framework.Step(t, "what cannot be compared stays closed", func(t *testing.T) {
		noted := migration(`metadata.annotations.kcpctl\.dev/content`)
		name := migration("metadata.name")
		s.Kubectl(t, "annotate", "logicalclustermigrations", name, "kcpctl.dev/content-").OK(t)
		cluster := migration("spec.logicalCluster")
		s.Kcpctl(t, "remove-shard", "alpha", "--drain", "--yes").Refused(t, 1, "move root:eu to shard beta: ",
			"so it stays closed on shard beta", "--allow unverified-copy=root:eu", "--workspace "+cluster)
		looking := []string{"--user", "me", "--group", "system:masters", "--target", "shard/beta", "--workspace", cluster}
		look := s.Command("kubeconfig", append(looking, "--", "kubectl", "get", "configmaps", "--output", "name")...)
		require.Contains(t, look.Run(t.Context(), t).OK(t).Stdout, "configmap/written-")
		s.Kubectl(t, "annotate", "logicalclustermigrations", name, "kcpctl.dev/content="+noted).OK(t)
	})
	framework.Step(t, "the next run compares the copy", func(t *testing.T) {
		// The events, because the log leaves out a reason that does not last.
		r := s.Kcpctl(t, "remove-shard", "alpha", "--drain", "--purge", "--yes", "--output", "json").OK(t)
		require.Contains(t, r.Stderr+r.Stdout, "shard beta: the shard has forgotten the move")
	})
	w.WriteMore(t, 50)
	w.Stop()
	w.Check(t, "eu")
	t.Logf("%d writes acknowledged, %d refused", w.Acknowledged, w.Refused)
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}
