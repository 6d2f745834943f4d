package framework

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoShards = `shards: [{name: alpha}, {name: beta}]`

// With another kubeconfig, the agent is on another cluster, as far as kcpctl knows, and dials kcp from outside.
const twoShardsOutside = `external: {hostname: kcp.example.test}
  rootShard: {virtualWorkspaceURL: "https://root.example.test:6443"}
  shards:
  - {name: alpha, virtualWorkspaceURL: "https://alpha.example.test:6443"}
  - {name: beta, virtualWorkspaceURL: "https://beta.example.test:6443"}`

// MayNot asks for the agent as a user who administers only its namespace. The cluster of kcp is used as before.
func (a *Agents) MayNot(t *testing.T) {
	user, at := a.Name+"-user", "namespace: "+a.Service.Namespace
	kubeconfig := a.Service.As(t, user)[1]
	if !strings.Contains(a.Service.Kubectl("get", "namespaces", "--output", "name").Run(t.Context(), t).OK(t).Stdout, a.Service.Namespace) {
		a.Service.MakeNamespace(t)
		defer func() { // down keeps what it has not created
			a.Service.Kubectl("delete", "namespace", a.Service.Namespace).Run(t.Context(), t).OK(t)
		}()
	}
	binding := []string{"rolebinding", "e2e-admin", "--namespace", a.Service.Namespace}
	create := append(append([]string{"create"}, binding...), "--clusterrole=admin", "--serviceaccount="+user+":user")
	a.Service.Kubectl(create...).Run(t.Context(), t).OK(t)
	own := fmt.Sprintf("kubeconfig: %s, %s", a.Service.Kubeconfig, at)
	require.Equal(t, 1, strings.Count(a.Text, own))
	text := strings.Replace(a.Text, own, fmt.Sprintf("kubeconfig: %s, %s", kubeconfig, at), 1)
	require.Equal(t, 1, strings.Count(text, twoShards))
	a.Write(t, strings.Replace(text, twoShards, twoShardsOutside, 1))
	before := a.Written(t)
	a.Finds(t, []string{"--pre"}, "KCP045", "fail", "clusterroles")
	a.Kcpctl(t, "up").Refused(t, 1, "clusterroles")
	require.Equal(t, before, a.Written(t), "nothing was to be written")
	a.Write(t, a.Text)
	a.Service.Kubectl(append([]string{"delete"}, binding...)...).Run(t.Context(), t).OK(t)
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

// ForeignExport asks for the agent while a user has an APIExport with its name.
func (a *Agents) ForeignExport(t *testing.T) {
	in := func(workspace, stdin string, args ...string) {
		c := a.Command("kubeconfig", append([]string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", workspace, "--", "kubectl"}, args...)...)
		c.Stdin = stdin
		c.Run(t.Context(), t).OK(t)
	}
	_, name, _ := strings.Cut(Provider, ":")
	in("root", strings.Replace(workspaceOfUser, "%s", name, 1), "create", "--filename", "-")
	in("root", "", "wait", "workspace", name, "--for=jsonpath={.status.phase}=Ready", "--timeout=3m")
	inProvider := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", Provider}
	Eventually(t.Context(), t, func() error { // a front-proxy learns of a new workspace after it is Ready (kcp#3858)
		_, err := a.KubectlAs(t, inProvider, "get", "apiexports").Output()
		return err
	})
	in(Provider, strings.Replace(exportOfUser, "%s", a.Export(), 1), "create", "--filename", "-")
	before := a.Written(t)
	a.Finds(t, []string{"--pre"}, "KCP044", "fail", "was not created by kcpctl")
	a.Kcpctl(t, "up").Refused(t, 4, "APIExport", a.Export(), "--force-conflicts")
	require.Equal(t, before, a.Written(t), "nothing was to be written")
	in(Provider, "", "delete", "apiexport", a.Export())
	in("root", "", "delete", "workspace", name)
}

// Shown requires that status shows what the agent has done.
func (a *Agents) Shown(t *testing.T, shards int) {
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
	Eventually(t.Context(), t, func() error {
		r := a.Kcpctl(t, "status", "--output", "json")
		if err := r.Decode(&out); err != nil {
			return err
		}
		for _, c := range out.Components {
			if c.ID == "agent/widgets" && c.Agent != nil && c.Agent.Leader != "" &&
				reflect.DeepEqual([]*share{{1, 1}, {shards, shards}}, []*share{c.Agent.Published, c.Agent.Answering}) {
				return nil
			}
		}
		return fmt.Errorf("status shows %s", r.Stdout)
	})
}
