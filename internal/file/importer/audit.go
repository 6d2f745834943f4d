package importer

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func auditRows() []row {
	const path, to = "spec.audit.webhook.", "audit.webhook."
	hook := (*object).auditWebhook
	return []row{
		mapped("spec.audit.policy.configMap", "audit.policy.configMap", auditPolicy),
		mapped(path+"configSecretName", to+"secret", into(func(o *object) *string { return &hook(o).Secret })),
		mapped(path+"mode", to+"mode", into(func(o *object) *string { return &hook(o).Mode })),
		mapped(path+"batchBufferSize", to+"batchBufferSize",
			nonZero(func(o *object) **int32 { return &hook(o).BatchBufferSize })),
		mapped(path+"batchMaxSize", to+"batchMaxSize",
			nonZero(func(o *object) **int32 { return &hook(o).BatchMaxSize })),
		mapped(path+"batchMaxWait", to+"batchMaxWait",
			into(func(o *object) *metav1.Duration { return &hook(o).BatchMaxWait })),
		mapped(path+"batchThrottleBurst", to+"batchThrottleBurst",
			nonZero(func(o *object) **int32 { return &hook(o).BatchThrottleBurst })),
		mapped(path+"batchThrottleEnable", to+"batchThrottleEnable",
			nonZero(func(o *object) **bool { return &hook(o).BatchThrottleEnable })),
		mapped(path+"batchThrottleQPS", to+"batchThrottleQPS", throttleQPS),
		mapped(path+"initialBackoff", to+"initialBackoff",
			into(func(o *object) *metav1.Duration { return &hook(o).InitialBackoff })),
		mapped(path+"truncateEnabled", to+"truncateEnabled",
			nonZero(func(o *object) **bool { return &hook(o).TruncateEnabled })),
		mapped(path+"truncateMaxBatchSize", to+"truncateMaxBatchSize",
			nonZero(func(o *object) **int64 { return &hook(o).TruncateMaxBatchSize })),
		mapped(path+"truncateMaxEventSize", to+"truncateMaxEventSize",
			nonZero(func(o *object) **int64 { return &hook(o).TruncateMaxEventSize })).
			but("kcp-operator misspells this flag, with which kcp does not start", "check that you want the limit"),
		needless(path+"version", "kcp has only one version of the audit API").unless("audit.k8s.io/v1"),
	}
}

// nonZero maps a value that kcp-operator ignores if it is zero.
func nonZero[T comparable](to func(*object) **T) func(value) {
	return func(v value) {
		var t, zero T
		if v.decode(&t) && t != zero {
			*to(v.o) = &t
		}
	}
}

// auditing returns the audit of an object, and adds it if there is none yet.
func (o *object) auditing() *v1alpha1.Audit {
	if o.audit == nil {
		o.audit = &v1alpha1.Audit{}
	}
	return o.audit
}

func (o *object) auditWebhook() *v1alpha1.AuditWebhook {
	if o.auditing().Webhook == nil {
		o.audit.Webhook = &v1alpha1.AuditWebhook{}
	}
	return o.audit.Webhook
}

func auditPolicy(v value) {
	var r reference
	if v.decode(&r) && !v.empty() {
		p := &v.o.auditing().Policy
		p.ConfigMap = r.Name
		p.Key = r.Key
	}
}

// throttleQPS maps a number that kcp-operator has as text.
func throttleQPS(v value) {
	var text string
	if !v.decode(&text) || text == "" {
		return
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		v.fail("must be a number", "")
		return
	}
	v.o.auditWebhook().BatchThrottleQPS = &n
}

// audited returns the audit of a shard, or nil if kcp records nothing with it.
func (o *object) audited() *v1alpha1.Audit {
	a := o.audit
	if a == nil {
		return nil
	}
	if a.Policy.ConfigMap == "" && len(a.Policy.Rules) == 0 {
		o.findAt("audit.", "without a policy, kcp records nothing", "set audit.policy")
		return nil
	}
	if a.Webhook != nil && a.Webhook.Secret == "" {
		o.findAt("audit.webhook.", "without configSecretName, kcp sends no events", "set audit.webhook")
		a.Webhook = nil
	}
	if w := a.Webhook; w != nil && w.Mode != "" && w.Mode != "batch" {
		o.findAt("audit.webhook.batch", "kcp uses it only with the mode batch", "")
		w.AuditBackend = v1alpha1.AuditBackend{Mode: w.Mode, TruncateEnabled: w.TruncateEnabled,
			TruncateMaxBatchSize: w.TruncateMaxBatchSize, TruncateMaxEventSize: w.TruncateMaxEventSize}
	}
	if a.Webhook == nil && o.proxy == nil { // the chart has a log
		o.find(Review, "kcp-operator has no audit log, and a setup without a webhook has one",
			"remove audit if you do not want it")
	}
	return a
}

// findAt adds a finding about all fields that become fields with a prefix.
func (o *object) findAt(prefix, why, instead string) {
	for _, to := range slices.Sorted(maps.Keys(o.origins)) {
		if strings.HasPrefix(to, prefix) {
			o.origins[to].find(NotMapped, why, instead)
		}
	}
}

// chartAuditRows returns the rows of the audit log of the chart. Its default policy records the metadata of all
// requests.
func chartAuditRows() []row {
	const theme = `audit\.log\.(path|dir|max|volume)`
	const file = "kcpctl writes events to the output of kcp, and gives it no volume"
	const instead = "collect the output of the pods, or mount a volume with podTemplate, and set --audit-log-path in " +
		"extraArgs"
	rows := []row{
		needless("audit.policy.dir", "kcpctl mounts the policy where it needs it"),
		needless("audit.policy.fileName", "kcpctl mounts the policy where it needs it"),
		mapped("audit.policy.config", "spec.rootShard.audit.policy", chartPolicy),
	}
	for _, f := range []string{"audit.volumeSize", "audit.volumeClassName", "audit.log", "kcp.volumeClassName",
		"kcp.volumeSize"} {
		rows = append(rows, lost(f, theme, file, instead))
	}
	return append(when("audit.enabled", rows...), mapped("audit.enabled", "spec.rootShard.audit", func(v value) {
		var on bool
		if v.decode(&on) && on && len(v.o.auditing().Policy.Rules) == 0 {
			v.o.audit.Policy.Rules = []v1alpha1.AuditRule{{Level: "Metadata"}}
		}
	}).but(file, instead))
}

// chartPolicy maps the text of a Policy.
func chartPolicy(v value) {
	var text string
	if !v.decode(&text) || text == "" {
		return
	}
	rules, problems := setup.AuditPolicy([]byte(text))
	for _, p := range problems {
		v.fail(p.Path+": "+p.Message, p.Hint)
	}
	v.o.auditing().Policy.AuditRules = rules
}
