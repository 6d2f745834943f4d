package importer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Fields that kcp-operator or kcp ignores do not make the setup file invalid.
func TestIgnoredFieldsOfAudit(t *testing.T) {
	const policy = "  audit:\n    policy: {configMap: {name: audit, key: policy.yaml}}\n    webhook: "
	hook := func(b v1alpha1.AuditBackend) *v1alpha1.Audit {
		return &v1alpha1.Audit{
			Policy:  v1alpha1.AuditPolicy{ConfigMap: "audit", Key: "policy.yaml"},
			Webhook: &v1alpha1.AuditWebhook{SecretKey: v1alpha1.SecretKey{Secret: "hook", Key: "kubeconfig"}, AuditBackend: b},
		}
	}
	for name, tc := range map[string]struct {
		audit, finding string
		want           *v1alpha1.Audit
	}{
		"zeros": {
			policy + "{configSecretName: hook, batchMaxSize: 0, batchThrottleEnable: false, batchThrottleQPS: \"\", truncateEnabled: false}\n",
			"", hook(v1alpha1.AuditBackend{}),
		},
		"another mode": {
			policy + "{configSecretName: hook, mode: blocking, batchMaxSize: 7}\n",
			"spec.audit.webhook.batchMaxSize: kcp uses it only with the mode batch", hook(v1alpha1.AuditBackend{Mode: "blocking"}),
		},
		"no policy": {
			"  audit: {webhook: {configSecretName: hook}}\n", "spec.audit.webhook.configSecretName: without a policy, kcp records nothing", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec, findings := imported(t, tc.audit, "", "")
			require.Equal(t, tc.want, spec.RootShard.Audit)
			require.Contains(t, report(findings), tc.finding)
		})
	}
}
