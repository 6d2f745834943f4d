//go:build e2e && long

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// report is the JSON output of kcpctl check.
type report struct {
	Passed  bool
	Results []struct{ ID, Status, Cause, Fix string }
}

func (s *setup) check(t *testing.T, args ...string) report {
	t.Helper()
	out, err := s.tryCheck(t, args...)
	require.NoError(t, err)
	return out
}

func (s *setup) tryCheck(t *testing.T, args ...string) (out report, err error) {
	t.Helper()
	r := s.kcpctl(t, "check", append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		return out, fmt.Errorf("%w: %s", err, r.stderr)
	}
	if out.Passed != (r.code == 0) {
		return out, fmt.Errorf("exit code %d: %v: %s", r.code, out, r.stderr)
	}
	return out, nil
}

// finds waits until a check has a status, and its cause the facts. A check that sees a cluster needs an answer of it in
// time, and some look at what its controllers write.
func (s *setup) finds(t *testing.T, flags []string, id, status string, facts ...string) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		r, err := s.tryCheck(t, flags...)
		if err == nil {
			err = r.has(id, status, facts...)
		}
		return err
	})
}

// has returns an error unless a check has a status, and its cause the facts.
func (r report) has(id, status string, facts ...string) error {
	got, cause := r.of(id)
	if got != status {
		return fmt.Errorf("%s is %q, not %q: %s", id, got, status, cause)
	}
	for _, fact := range facts {
		if !strings.Contains(cause, fact) {
			return fmt.Errorf("%s does not say %q: %s", id, fact, cause)
		}
	}
	return nil
}

// passes waits until no check fails, and those with the IDs are ok.
func (s *setup) passes(t *testing.T, flags []string, ids ...string) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		r, err := s.tryCheck(t, flags...)
		if err == nil && !r.Passed {
			err = fmt.Errorf("%v", r)
		}
		for _, id := range ids {
			if err == nil {
				err = r.has(id, "ok")
			}
		}
		return err
	})
}

// becomesReady waits until all components are ready. A busy machine may not answer kcpctl status in time.
func (s *setup) becomesReady(t *testing.T) (now status) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		now = status{}
		return s.kcpctl(t, "status", "--output", "json").decode(&now)
	})
	require.True(t, now.Ready, now)
	for _, c := range now.Components {
		require.True(t, c.Ready, c)
	}
	return now
}

// of returns the result of a check.
func (r report) of(id string) (status, cause string) {
	for _, res := range r.Results {
		if res.ID == id {
			return res.Status, res.Cause
		}
	}
	return "", ""
}

// checkBreakage is a defect of a real setup, and the check that must find it.
type checkBreakage struct {
	name string
	// breakIt makes the defect, repair removes it.
	breakIt, repair func(t *testing.T, s *setup)
	flags           []string
	id, status      string
	facts           []string // of the cause
	// up means that kcpctl up must fail with the same cause and write nothing.
	up bool
}

func checkBreakages() []checkBreakage {
	patchShard := func(patch string) func(t *testing.T, s *setup) {
		return func(t *testing.T, s *setup) {
			s.kubectl(t, "patch", "shard", "root", "--type=merge", "--patch", patch).ok(t)
		}
	}
	cordon := func(value string) string {
		return `{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":` + value + `}}}`
	}
	inNamespace := func(args ...string) func(t *testing.T, s *setup) {
		return func(t *testing.T, s *setup) {
			c := s.runtime.(*cluster)
			c.kubectl(append(args, "--namespace", s.name)...).run(t.Context(), t).ok(t)
		}
	}
	withShard := func(end string) func(t *testing.T, s *setup) {
		return func(t *testing.T, s *setup) { s.write(t, s.text+"spec:\n  shards: [{name: more}]\n"+end) }
	}
	restoreFile := func(t *testing.T, s *setup) { s.write(t, s.text) }
	both := func(all ...func(*testing.T, *setup)) func(*testing.T, *setup) {
		return func(t *testing.T, s *setup) {
			for _, do := range all {
				do(t, s)
			}
		}
	}
	up := func(t *testing.T, s *setup) { s.up(t, "--skip-canary", "--force-conflicts") }
	return []checkBreakage{
		{
			name: "the root shard is cordoned", breakIt: patchShard(cordon(`"true"`)), repair: patchShard(cordon(`null`)),
			id: "KCP122", status: "fail", facts: []string{"root"},
		},
		{
			name: "the shard has another URL", breakIt: patchShard(`{"spec":{"externalURL":"https://elsewhere.example.com:6443"}}`),
			repair: func(t *testing.T, s *setup) {
				patchShard(fmt.Sprintf(`{"spec":{"externalURL":%q}}`, s.status(t).URL))(t, s)
			},
			id: "KCP121", status: "fail", facts: []string{"root-shard", "https://elsewhere.example.com:6443"},
		},
		{
			name: "a registered shard is not in the setup",
			breakIt: func(t *testing.T, s *setup) {
				apply := s.command("kubeconfig", "admin", "--", "kubectl", "apply", "-f", "-")
				apply.stdin = `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"ghost","annotations":` +
					`{"experimental.core.kcp.io/unschedulable":"true"}},"spec":{"baseURL":"https://ghost.example.com:6443",` +
					`"externalURL":"https://ghost.example.com:6443","virtualWorkspaceURL":"https://ghost.example.com:6443"}}`
				apply.run(t.Context(), t).ok(t)
			},
			repair: func(t *testing.T, s *setup) { s.kubectl(t, "delete", "shard", "ghost").ok(t) },
			id:     "KCP121", status: "warn", facts: []string{"ghost", "https://ghost.example.com:6443"},
		},
		{
			name: "the front-proxy is gone", breakIt: func(t *testing.T, s *setup) {
				inNamespace("delete", "deployment", s.name+"-front-proxy-main", "--wait")(t, s)
			}, repair: up,
			id: "KCP101", status: "fail", facts: []string{"front-proxy/main"},
		},
		{
			name: "a client's certificate is another component's", breakIt: func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				server := c.kubectl("get", "secret", s.name+"-root-server", "--namespace", s.name, "--output", "jsonpath={.data}").run(t.Context(), t).ok(t).stdout
				inNamespace("patch", "secret", s.name+"-front-proxy-main-shard-client", "--patch", `{"data":`+server+`}`)(t, s)
			}, repair: up,
			id: "KCP112", status: "fail", facts: []string{"front-proxy/main", "-front-proxy-main-shard-client"},
		},
		{
			name: "a Secret is missing", breakIt: func(t *testing.T, s *setup) {
				s.write(t, s.text+"spec:\n  image: {pullSecrets: [nowhere]}\n")
			}, repair: restoreFile, flags: []string{"--pre"}, up: true,
			id: "KCP011", status: "fail", facts: []string{"/nowhere"},
		},
		{
			name: "a storage class is misspelt", breakIt: withShard("  etcd: {managed: {storageClassName: fats}}\n"), repair: restoreFile,
			flags: []string{"--pre"}, up: true,
			id: "KCP012", status: "fail", facts: []string{`"fats"`, "etcd/more"},
		},
		{
			name: "the quota is used up",
			breakIt: both(inNamespace("create", "quota", "small", "--hard=pods=4"),
				// A controller counts what is used.
				inNamespace("wait", "resourcequota/small", "--for=jsonpath={.status.used.pods}", "--timeout=3m"), withShard("")),
			repair: both(inNamespace("delete", "quota", "small"), restoreFile), flags: []string{"--pre"}, up: true,
			id: "KCP013", status: "fail",
			// A terminating pod counts too.
			facts: []string{"ResourceQuota/small", "2 more", "pods"},
		},
		{
			name: "pod security rejects an overlay",
			breakIt: func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				c.kubectl("label", "namespace", s.name, "pod-security.kubernetes.io/enforce=restricted").run(t.Context(), t).ok(t)
				s.write(t, s.text+"spec:\n  frontProxies: [{name: main, podTemplate: {spec: {hostNetwork: true}}}]\n")
			},
			repair: func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				c.kubectl("label", "namespace", s.name, "pod-security.kubernetes.io/enforce-").run(t.Context(), t).ok(t)
				restoreFile(t, s)
			},
			flags: []string{"--pre"}, up: true,
			id: "KCP014", status: "fail", facts: []string{"Deployment/", "violates PodSecurity", "hostNetwork"},
		},
		{
			name: "the external host name does not resolve",
			breakIt: func(t *testing.T, s *setup) {
				s.write(t, s.text+"spec:\n  external: {hostname: kcp.nowhere.invalid}\n")
			},
			repair: restoreFile, flags: []string{"--pre"},
			id: "KCP021", status: "warn", facts: []string{"kcp.nowhere.invalid"},
		},
	}
}

// TestClusterChecks breaks a running setup in many ways. The checks must find each cause, and must pass before and
// after.
func TestClusterChecks(t *testing.T) {
	s := newCluster(t, "minimal")
	step(t, "checks pass before up", func(t *testing.T) { s.check(t, "--pre", "--wait", "1m").passes(t) })
	step(t, "up", func(t *testing.T) { s.up(t, "--skip-canary") })
	step(t, "checks pass while it runs", func(t *testing.T) { s.check(t, "--wait", "1m").passes(t) })
	for _, b := range checkBreakages() {
		step(t, b.name, func(t *testing.T) {
			b.breakIt(t, s)
			s.finds(t, b.flags, b.id, b.status, b.facts...)
			if b.up {
				before := s.written(t)
				s.kcpctl(t, "up").refused(t, 1, b.id, b.facts[0])
				require.Equal(t, before, s.written(t), "nothing was to be written")
			}
			b.repair(t, s)
			s.check(t, "--wait", "2m").passes(t)
		})
	}
}

func (r report) passes(t *testing.T) {
	t.Helper()
	for _, res := range r.Results {
		require.NotEqual(t, "fail", res.Status, "%s: %s", res.ID, res.Cause)
	}
}
