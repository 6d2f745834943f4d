package render

import (
	"strconv"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	auditPolicyFile  = "audit-policy.yaml"
	auditWebhookFile = "audit-webhook.kubeconfig"
)

// auditFlags returns the flags with which a server records requests (k8s: apiserver/pkg/server/options/audit.go).
func auditFlags(c *topology.Component) []flag {
	a := c.Audit
	if a == nil {
		return nil
	}
	fl := []flag{{"audit-policy-file", c.Path(files.Config(auditPolicyFile))}}
	if a.Log != nil {
		fl = append(fl, flag{"audit-log-path", "-"})
		fl = append(fl, backendFlags("audit-log-", *a.Log)...)
	}
	if w := a.Webhook; w != nil {
		fl = append(fl, flag{"audit-webhook-config-file", c.Path(files.Config(auditWebhookFile))})
		fl = append(fl, backendFlags("audit-webhook-", w.AuditBackend)...)
		fl = append(fl, given("audit-webhook-", flag{"initial-backoff", duration(w.InitialBackoff.Duration)})...)
	}
	return fl
}

// backendFlags returns the flags for how events are written.
func backendFlags(prefix string, b v1alpha1.AuditBackend) []flag {
	return given(prefix,
		flag{"mode", b.Mode},
		flag{"batch-buffer-size", number(b.BatchBufferSize)},
		flag{"batch-max-size", number(b.BatchMaxSize)},
		flag{"batch-max-wait", duration(b.BatchMaxWait.Duration)},
		flag{"batch-throttle-enable", boolean(b.BatchThrottleEnable)},
		flag{"batch-throttle-qps", decimal(b.BatchThrottleQPS)},
		flag{"batch-throttle-burst", number(b.BatchThrottleBurst)},
		flag{"truncate-enabled", boolean(b.TruncateEnabled)},
		flag{"truncate-max-batch-size", number(b.TruncateMaxBatchSize)},
		flag{"truncate-max-event-size", number(b.TruncateMaxEventSize)})
}

// given returns the flags that have a value, with a prefix.
func given(prefix string, all ...flag) (out []flag) {
	for _, f := range all {
		if f.value != "" {
			out = append(out, flag{prefix + f.name, f.value})
		}
	}
	return out
}

func number[T int32 | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

func decimal(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

func boolean(b *bool) string {
	if b == nil {
		return ""
	}
	return strconv.FormatBool(*b)
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// audit returns the policy in the component's ConfigMap, and the files in objects of the user.
func (b *objects) audit() (items []item, srcs []source) {
	a := b.c.Audit
	if a == nil {
		return nil, nil
	}
	policy := files.Config(auditPolicyFile)
	if name := a.Policy.ConfigMap; name != "" {
		srcs = append(srcs, source{configMap: name, items: []item{{key: a.Policy.Key, path: policy}}})
	} else {
		content := auditPolicy{v1alpha1.AuditPolicyVersion, v1alpha1.AuditPolicyKind, a.Policy.AuditRules}
		items = append(items, item{auditPolicyFile, policy, toYAML(content)})
	}
	if w := a.Webhook; w != nil {
		srcs = append(srcs, source{secret: w.Secret, items: []item{{key: w.Key, path: files.Config(auditWebhookFile)}}})
	}
	return items, srcs
}

// auditPolicy is a Policy of audit.k8s.io.
type auditPolicy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	v1alpha1.AuditRules `json:",inline"`
}
