package setup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const auditFile = minimal + "spec:\n  shards: [{name: alpha, audit: {policy: {file: audit.yaml}}}]\n"

func writeAudit(t *testing.T, policy string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"kcp.yaml": auditFile, "audit.yaml": policy} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// A setup has the content of a file with a policy, so that it can be read without the file.
func TestAuditPolicyInFile(t *testing.T) {
	dir := writeAudit(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\nmetadata: {name: mine}\nrules: [{level: Metadata, verbs: [create]}]\n")
	f, err := Load(filepath.Join(dir, "kcp.yaml"), nil)
	require.NoError(t, err)
	policy := f.Setup.Spec.Shards[0].Audit.Policy
	require.Empty(t, policy.File)
	require.Equal(t, []string{"create"}, policy.Rules[0].Verbs)
	text, err := Marshal(f.Setup)
	require.NoError(t, err)
	again, err := Parse("kcp.yaml", text)
	require.NoError(t, err)
	require.Equal(t, f.Setup, again.Setup)
}

// The problems of a policy have its file, line and column, and are reported together.
func TestProblemsOfAuditPolicyInFile(t *testing.T) {
	for name, tc := range map[string]struct{ policy, want string }{
		"kind":      {"apiVersion: v1\nkind: Policy\n", "audit.yaml:1:13: apiVersion: must be audit.k8s.io/v1, not \"v1\""},
		"empty":     {"", "audit.yaml:1:1: must have one Policy, not 0"},
		"syntax":    {"rules: [\n", "audit.yaml:2:1: invalid YAML"},
		"no rules":  {"apiVersion: audit.k8s.io/v1\nkind: Policy\n", "audit.yaml:1:1: rules: required: without a rule, nothing is recorded"},
		"documents": {"kind: A\n---\nkind: B\n", "audit.yaml:1:1: must have one Policy, not 2"},
		"fields": {"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: All}\n- {lvl: None}\n",
			"audit.yaml:4:11: rules[0].level: unsupported value \"All\", known: None, Metadata, Request, RequestResponse"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeAudit(t, tc.policy)
			_, err := Load(filepath.Join(dir, "kcp.yaml"), nil)
			require.ErrorContains(t, err, filepath.Join(dir, tc.want))
			if name == "fields" {
				require.ErrorContains(t, err, "audit.yaml:5:4: rules[1].lvl: unknown field")
			}
		})
	}
	_, err := Parse("kcp.yaml", []byte(auditFile))
	require.EqualError(t, err, "kcp.yaml:6:49: spec.shards[0].audit.policy.file: files cannot be read here: write the content into the setup file")
}
