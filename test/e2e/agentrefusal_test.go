//go:build e2e && long && day2

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayNot asks for the agent as a user who administers only its namespace. The cluster of kcp is used as before.
func (a *agents) mayNot(t *testing.T) {
	user, at := a.name+"-user", "namespace: "+a.service.namespace
	kubeconfig := a.service.as(t, user)[1]
	if !strings.Contains(a.service.kubectl("get", "namespaces", "--output", "name").run(t.Context(), t).ok(t).stdout, a.service.namespace) {
		a.service.makeNamespace(t)
	}
	binding := []string{"rolebinding", "e2e-admin", "--namespace", a.service.namespace}
	create := append(append([]string{"create"}, binding...), "--clusterrole=admin", "--serviceaccount="+user+":user")
	a.service.kubectl(create...).run(t.Context(), t).ok(t)
	own := fmt.Sprintf("kubeconfig: %s, %s", a.service.kubeconfig, at)
	require.Equal(t, 1, strings.Count(a.text, own))
	a.write(t, strings.Replace(a.text, own, fmt.Sprintf("kubeconfig: %s, %s", kubeconfig, at), 1))
	before := a.written(t)
	status, cause := a.check(t, "--pre").of("KCP045")
	require.Equal(t, "fail", status, cause)
	require.Contains(t, cause, "clusterroles")
	a.kcpctl(t, "up").refused(t, 1, "clusterroles")
	require.Equal(t, before, a.written(t), "nothing was to be written")
	a.write(t, a.text)
	a.service.kubectl(append([]string{"delete"}, binding...)...).run(t.Context(), t).ok(t)
}

const workspaceOfUser = `apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: %s}
spec:
  type: {name: universal, path: root}
`

const exportOfUser = `apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: %s}
`

// foreignExport asks for the agent while a user has an APIExport with its name.
func (a *agents) foreignExport(t *testing.T) {
	in := func(workspace, stdin string, args ...string) {
		c := a.command("kubeconfig", append([]string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace, "--", "kubectl"}, args...)...)
		c.stdin = stdin
		c.run(t.Context(), t).ok(t)
	}
	_, name, _ := strings.Cut(provider, ":")
	in("root", strings.Replace(workspaceOfUser, "%s", name, 1), "create", "--filename", "-")
	in("root", "", "wait", "workspace", name, "--for=jsonpath={.status.phase}=Ready")
	in(provider, strings.Replace(exportOfUser, "%s", a.export(), 1), "create", "--filename", "-")
	before := a.written(t)
	status, cause := a.check(t, "--pre").of("KCP044")
	require.Equal(t, "fail", status, cause)
	require.Contains(t, cause, "was not created by kcpctl")
	a.kcpctl(t, "up").refused(t, 4, "APIExport", a.export(), "--force-conflicts")
	require.Equal(t, before, a.written(t), "nothing was to be written")
	in(provider, "", "delete", "apiexport", a.export())
	in("root", "", "delete", "workspace", name)
}

// shown requires that status shows what the agent has done.
func (a *agents) shown(t *testing.T, shards int) {
	type share struct{ Count, Of int }
	var out struct {
		Components []struct {
			ID    string
			Agent *struct {
				Leader               string
				Published, Answering *share
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.kcpctl(t, "status", "--output", "json").ok(t).stdout), &out))
	for _, c := range out.Components {
		if c.ID == "agent/widgets" {
			require.NotNil(t, c.Agent)
			require.NotEmpty(t, c.Agent.Leader)
			require.Equal(t, []*share{{1, 1}, {shards, shards}}, []*share{c.Agent.Published, c.Agent.Answering})
			return
		}
	}
	require.Fail(t, "status does not show the agent")
}
