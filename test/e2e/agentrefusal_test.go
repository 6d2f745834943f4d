//go:build e2e && long && day2

package e2e

import (
	"fmt"
	"reflect"
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
	a.finds(t, []string{"--pre"}, "KCP045", "fail", "clusterroles")
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
	in("root", "", "wait", "workspace", name, "--for=jsonpath={.status.phase}=Ready", "--timeout=3m")
	inProvider := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", provider}
	eventually(t.Context(), t, func() error { // a front-proxy learns of a new workspace after it is Ready (kcp#3858)
		_, err := a.kubectlAs(t, inProvider, "get", "apiexports").output()
		return err
	})
	in(provider, strings.Replace(exportOfUser, "%s", a.export(), 1), "create", "--filename", "-")
	before := a.written(t)
	a.finds(t, []string{"--pre"}, "KCP044", "fail", "was not created by kcpctl")
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
	eventually(t.Context(), t, func() error {
		r := a.kcpctl(t, "status", "--output", "json")
		if err := r.decode(&out); err != nil {
			return err
		}
		for _, c := range out.Components {
			if c.ID == "agent/widgets" && c.Agent != nil && c.Agent.Leader != "" &&
				reflect.DeepEqual([]*share{{1, 1}, {shards, shards}}, []*share{c.Agent.Published, c.Agent.Answering}) {
				return nil
			}
		}
		return fmt.Errorf("status shows %s", r.stdout)
	})
}
