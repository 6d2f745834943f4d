package setup

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

const (
	defaultPolicyKey = "policy.yaml"
	modeBatch        = "batch"
)

// policyManifest is a Policy in a separate file.
type policyManifest struct {
	APIVersion          string          `json:"apiVersion"`
	Kind                string          `json:"kind"`
	Metadata            v1alpha1.Object `json:"metadata"`
	v1alpha1.AuditRules `json:",inline"`
}

// auditAt is an audit of a setup, and where it is.
type auditAt struct {
	*v1alpha1.Audit
	at *field.Path
}

func audits(spec *v1alpha1.Spec) []auditAt {
	path := field.NewPath("spec")
	all := []auditAt{{spec.Audit, path.Child("audit")}, {spec.RootShard.Audit, path.Child("rootShard", "audit")}}
	for i := range spec.Shards {
		all = append(all, auditAt{spec.Shards[i].Audit, path.Child("shards").Index(i).Child("audit")})
	}
	return slices.DeleteFunc(all, func(a auditAt) bool { return a.Audit == nil })
}

func defaultAudit(spec *v1alpha1.Spec) {
	for _, a := range audits(spec) {
		if a.Log == nil && a.Webhook == nil {
			a.Log = &v1alpha1.AuditBackend{}
		}
		if a.Policy.ConfigMap != "" {
			fill(&a.Policy.Key, defaultPolicyKey)
		}
		if a.Log != nil {
			defaultBackend(a.Log)
		}
		if a.Webhook != nil {
			fill(&a.Webhook.Key, defaultWebhookKey)
			defaultBackend(&a.Webhook.AuditBackend)
		}
	}
}

// defaultBackend enables the limits of sizes that are set: kcp ignores them otherwise.
func defaultBackend(b *v1alpha1.AuditBackend) {
	if b.TruncateMaxBatchSize != nil || b.TruncateMaxEventSize != nil {
		fillPointer(&b.TruncateEnabled, true)
	}
}

// audit checks all audits. Rules in files are checked when the files are read.
func (v *validator) audit() {
	for _, a := range audits(&v.setup.Spec) {
		v.auditPolicy(a.at.Child("policy"), a.Policy)
		if a.Log != nil {
			v.auditBackend(a.at.Child("log"), *a.Log, "")
		}
		if w := a.Webhook; w != nil {
			v.secretKey(a.at.Child("webhook"), w.SecretKey)
			v.auditBackend(a.at.Child("webhook"), w.AuditBackend, modeBatch)
		}
	}
}

func (v *validator) auditPolicy(p *field.Path, a v1alpha1.AuditPolicy) {
	inline := len(a.Rules)+len(a.OmitStages) > 0 || a.OmitManagedFields
	switch {
	case a.File == "" && a.ConfigMap == "":
		if a.Key != "" {
			v.forbidden(p.Child("key"), "only a configMap has keys")
		}
		v.auditRules(p, a.AuditRules)
	case a.File != "" && a.ConfigMap != "" || inline:
		v.forbidden(p, "must have only one of rules, file and configMap")
	case a.ConfigMap != "":
		v.subdomain(p.Child("configMap"), a.ConfigMap)
		v.key(p.Child("key"), a.Key)
	}
}

// auditRules requires rules that kcp accepts (k8s: apiserver/pkg/apis/audit/validation).
func (v *fields) auditRules(p *field.Path, a v1alpha1.AuditRules) {
	if len(a.Rules) == 0 {
		v.required(p.Child("rules"), "without a rule, nothing is recorded")
	}
	v.stages(p, a.OmitStages)
	for i, r := range a.Rules {
		at := p.Child("rules").Index(i)
		oneOf(v, at.Child("level"), r.Level, "None", "Metadata", "Request", "RequestResponse")
		v.stages(at, r.OmitStages)
		if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
			v.forbidden(at.Child("nonResourceURLs"), "a rule is either for paths or for resources and namespaces")
		}
		for n, url := range r.NonResourceURLs {
			if url != "*" && (!strings.HasPrefix(url, "/") || strings.Contains(strings.TrimSuffix(url, "*"), "*")) {
				v.invalid(at.Child("nonResourceURLs").Index(n), url, "must begin with /, and have * only at the end")
			}
		}
		for n, res := range r.Resources {
			if len(res.ResourceNames) > 0 && len(res.Resources) == 0 {
				v.required(at.Child("resources").Index(n).Child("resources"), "resourceNames need a resource")
			}
		}
	}
}

func (v *fields) stages(p *field.Path, stages []string) {
	for i, s := range stages {
		oneOf(v, p.Child("omitStages").Index(i), s, "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
	}
}

// auditBackend checks how events are written. mode is the default of kcp.
func (v *fields) auditBackend(p *field.Path, b v1alpha1.AuditBackend, mode string) {
	if b.Mode != "" {
		mode = b.Mode
		oneOf(v, p.Child("mode"), b.Mode, modeBatch, "blocking", "blocking-strict")
	}
	for _, f := range []struct {
		name  string
		value float64
		set   bool
	}{
		{"batchBufferSize", float64(orZero(b.BatchBufferSize)), b.BatchBufferSize != nil},
		{"batchMaxSize", float64(orZero(b.BatchMaxSize)), b.BatchMaxSize != nil},
		{"batchMaxWait", 1, b.BatchMaxWait.Duration != 0},
		{"batchThrottleQPS", orZero(b.BatchThrottleQPS), b.BatchThrottleQPS != nil},
		{"batchThrottleBurst", float64(orZero(b.BatchThrottleBurst)), b.BatchThrottleBurst != nil},
		{"batchThrottleEnable", 1, b.BatchThrottleEnable != nil},
		{"truncateMaxBatchSize", float64(orZero(b.TruncateMaxBatchSize)), b.TruncateMaxBatchSize != nil},
		{"truncateMaxEventSize", float64(orZero(b.TruncateMaxEventSize)), b.TruncateMaxEventSize != nil},
	} {
		if f.set && f.value <= 0 {
			v.invalid(p.Child(f.name), f.value, "must be greater than 0")
		}
		if f.set && strings.HasPrefix(f.name, modeBatch) && mode != modeBatch {
			v.forbidden(p.Child(f.name), "only the mode batch uses it: set mode")
		}
	}
}

func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// policies reads the files with audit policies, and replaces the files in the setup with their content.
func (p *publisher) policies() {
	for _, a := range audits(&p.setup.Spec) {
		file, at := a.Policy.File, a.at.Child("policy", "file")
		if file == "" || a.Policy.ConfigMap != "" {
			continue
		}
		found := p.contents(file, at)
		if len(found) > 1 {
			p.problem(at, "%q matches %d files: a policy is in one", file, len(found))
		}
		for _, f := range found {
			a.Policy.AuditRules = p.policy(f)
		}
		a.Policy.File = ""
	}
}

func (p *publisher) policy(f fileContent) v1alpha1.AuditRules {
	out, problems := AuditPolicy(f.data)
	for _, problem := range problems {
		problem.File = f.name
		p.problems = append(p.problems, problem)
	}
	return out
}

// AuditPolicy decodes a text with a Policy of audit.k8s.io. It returns all problems, without a file.
func AuditPolicy(data []byte) (v1alpha1.AuditRules, Errors) {
	var m policyManifest
	docs, syntax := Documents(data)
	switch {
	case syntax != nil:
		return m.AuditRules, Errors{*syntax}
	case len(docs) != 1:
		message := fmt.Sprintf("must have one %s, not %d", v1alpha1.AuditPolicyKind, len(docs))
		return m.AuditRules, Errors{{Line: 1, Column: 1, Message: message}}
	}
	d := newDecoder()
	if !d.hasKind(docs[0], v1alpha1.AuditPolicyVersion, v1alpha1.AuditPolicyKind) {
		return m.AuditRules, d.problems
	}
	tree, ok := d.value(docs[0], reflect.TypeFor[policyManifest](), nil)
	raw, err := json.Marshal(tree)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &m)
	}
	if err != nil {
		d.report(nil, docs[0], fmt.Sprintf("cannot be decoded: %v", err), "")
	}
	if rules := newFields(); ok && err == nil {
		rules.auditRules(nil, m.AuditRules)
		d.problems = append(d.problems, d.located(rules.errs)...)
	}
	return m.AuditRules, d.problems
}
