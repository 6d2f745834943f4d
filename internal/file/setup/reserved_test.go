package setup

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What gives users more than the file seems to is a note of every command.
func TestExposures(t *testing.T) {
	f := read(t, `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  authentication:
    oidc: {issuerURL: "https://login.example.com", clientID: kcp, usernameClaim: preferred_username, usernamePrefix: "-", groupsClaim: groups}
    tokenFile: {secret: tokens}
  frontProxies:
  - name: main
    authentication: {webhook: {secret: hook}}
  kubeconfigs: [{name: a, user: "kcpctl:agent:demo:widgets"}]
  workspaces:
  - name: teams
    access: [{clusterRole: cluster-admin, groups: ["system:authenticated"]}]
    workspaces: [{name: a, access: [{name: x, groups: ["system:unauthenticated"]}, {clusterRole: view, groups: ["system:authenticated"]}]}]
`)
	var got []string
	for _, note := range f.Notes() {
		if strings.HasPrefix(note, "spec.") {
			field, _, _ := strings.Cut(note, ": ")
			got = append(got, field)
		}
	}
	require.Equal(t, []string{
		"spec.authentication.oidc.groupsPrefix", "spec.authentication.oidc.usernamePrefix", "spec.authentication.tokenFile",
		"spec.frontProxies[0].authentication.webhook", "spec.kubeconfigs[0].user",
		"spec.workspaces[0].access[0]", "spec.workspaces[0].workspaces[0].access[0]",
	}, got)
	require.Empty(t, read(t, commented).Notes())
}
