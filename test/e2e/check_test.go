//go:build e2e && long

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// report is what programs see of kcpctl check.
type report struct {
	Passed  bool
	Results []struct{ ID, Status, Cause, Fix string }
}

func (s *setup) check(t *testing.T, args ...string) report {
	t.Helper()
	r := s.kcpctl(t, "check", append(args, "--output", "json")...)
	var out report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out), r.stderr)
	require.Equal(t, out.Passed, r.code == 0, r.stderr)
	return out
}

// of returns how a check ended.
func (r report) of(id string) (status, cause string) {
	for _, res := range r.Results {
		if res.ID == id {
			return res.Status, res.Cause
		}
	}
	return "", ""
}

// checkBreakage is something wrong with a real setup, and the check that has to say so.
type checkBreakage struct {
	name string
	// spoil breaks it, mend makes it good.
	spoil, mend func(t *testing.T, s *setup)
	flags       []string
	id, status  string
	says        []string
	// up says that kcpctl up has to refuse with the same cause, and to write nothing.
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
	asItWas := func(t *testing.T, s *setup) { s.write(t, s.text) }
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
			name: "the root shard is cordoned", spoil: patchShard(cordon(`"true"`)), mend: patchShard(cordon(`null`)),
			id: "KCP122", status: "fail", says: []string{"every shard is cordoned: root"},
		},
		{
			name: "the shard has another URL", spoil: patchShard(`{"spec":{"externalURL":"https://elsewhere.example.com:6443"}}`),
			mend: func(t *testing.T, s *setup) {
				patchShard(fmt.Sprintf(`{"spec":{"externalURL":%q}}`, s.status(t).URL))(t, s)
			},
			id: "KCP121", status: "fail", says: []string{"root-shard is registered with the external URL https://elsewhere.example.com:6443"},
		},
		{
			name: "a shard is registered that nobody runs",
			spoil: func(t *testing.T, s *setup) {
				apply := s.command("kubeconfig", "admin", "--", "kubectl", "apply", "-f", "-")
				apply.stdin = `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"ghost","annotations":` +
					`{"experimental.core.kcp.io/unschedulable":"true"}},"spec":{"baseURL":"https://ghost.example.com:6443",` +
					`"externalURL":"https://ghost.example.com:6443","virtualWorkspaceURL":"https://ghost.example.com:6443"}}`
				apply.run(t.Context(), t).ok(t)
			},
			mend: func(t *testing.T, s *setup) { s.kubectl(t, "delete", "shard", "ghost").ok(t) },
			id:   "KCP121", status: "warn", says: []string{"shard ghost (https://ghost.example.com:6443) is registered, and the setup does not have it"},
		},
		{
			name: "the front-proxy is gone", spoil: func(t *testing.T, s *setup) {
				inNamespace("delete", "deployment", s.name+"-front-proxy-main", "--wait")(t, s)
			}, mend: up,
			id: "KCP101", status: "fail", says: []string{"front-proxy/main: "},
		},
		{
			name: "a client's certificate is another component's", spoil: func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				server := c.kubectl("get", "secret", s.name+"-root-server", "--namespace", s.name, "--output", "jsonpath={.data}").run(t.Context(), t).ok(t).stdout
				inNamespace("patch", "secret", s.name+"-front-proxy-main-shard-client", "--patch", `{"data":`+server+`}`)(t, s)
			}, mend: up,
			id: "KCP112", status: "fail", says: []string{"front-proxy/main at ", "the server does not know the client's certificate"},
		},
		{
			name: "a Secret is missing", spoil: func(t *testing.T, s *setup) {
				s.write(t, s.text+"spec:\n  image: {pullSecrets: [nowhere]}\n")
			}, mend: asItWas, flags: []string{"--pre"}, up: true,
			id: "KCP011", status: "fail", says: []string{"/nowhere, used by "},
		},
		{
			name: "a storage class is misspelt", spoil: withShard("  etcd: {managed: {storageClassName: fats}}\n"), mend: asItWas,
			flags: []string{"--pre"}, up: true,
			id: "KCP012", status: "fail", says: []string{`there is no storage class "fats", which the volumes of etcd/more want`},
		},
		{
			name:  "the quota is used up",
			spoil: both(inNamespace("create", "quota", "small", "--hard=pods=4"), withShard("")),
			mend:  both(inNamespace("delete", "quota", "small"), asItWas), flags: []string{"--pre"}, up: true,
			id: "KCP013", status: "fail",
			// A pod that is about to leave counts too.
			says: []string{"ResourceQuota/small: the setup needs 2 more of pods, and "},
		},
		{
			name: "pod security forbids what an overlay asks for",
			spoil: func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				c.kubectl("label", "namespace", s.name, "pod-security.kubernetes.io/enforce=restricted").run(t.Context(), t).ok(t)
				s.write(t, s.text+"spec:\n  frontProxies: [{name: main, podTemplate: {spec: {hostNetwork: true}}}]\n")
			},
			mend: func(t *testing.T, s *setup) {
				c := s.runtime.(*cluster)
				c.kubectl("label", "namespace", s.name, "pod-security.kubernetes.io/enforce-").run(t.Context(), t).ok(t)
				asItWas(t, s)
			},
			flags: []string{"--pre"}, up: true,
			id: "KCP014", status: "fail", says: []string{"does not admit pods of", "Deployment/", "violates PodSecurity", "hostNetwork"},
		},
		{
			name: "the external host name does not resolve",
			spoil: func(t *testing.T, s *setup) {
				s.write(t, s.text+"spec:\n  external: {hostname: kcp.nowhere.invalid}\n")
			},
			mend: asItWas, flags: []string{"--pre"},
			id: "KCP021", status: "warn", says: []string{"kcp.nowhere.invalid does not resolve"},
		},
	}
}

// TestClusterChecks breaks a running setup in many ways. The checks name each cause, and are content before and after.
func TestClusterChecks(t *testing.T) {
	s := newCluster(t, "minimal")
	step(t, "nothing is wrong before", func(t *testing.T) { s.check(t, "--pre").passes(t) })
	step(t, "up", func(t *testing.T) { s.up(t, "--skip-canary") })
	step(t, "nothing is wrong while it runs", func(t *testing.T) { s.check(t, "--wait", "1m").passes(t) })
	for _, b := range checkBreakages() {
		step(t, b.name, func(t *testing.T) {
			b.spoil(t, s)
			status, cause := s.check(t, b.flags...).of(b.id)
			require.Equal(t, b.status, status, cause)
			for _, says := range b.says {
				require.Contains(t, cause, says)
			}
			if b.up {
				before := s.written(t)
				s.kcpctl(t, "up").refused(t, 1, b.id, b.says[0])
				require.Equal(t, before, s.written(t), "nothing was to be written")
			}
			b.mend(t, s)
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
