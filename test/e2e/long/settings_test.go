package long

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// configured is a setup with settings whose effects are visible: those of the root shard come from files beside it.
const configured = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  audit: {policy: {file: audit.yaml}}
  authorization:
    webhook: {secret: authorizer, cacheAuthorizedTTL: 1s, cacheUnauthorizedTTL: 1s}
    order: [AlwaysAllowGroups, AlwaysAllowPaths, Webhook, RBAC]
  homeWorkspaces: {enabled: false}
  featureGates: {WorkspaceAuthentication: true, LogicalClusterMigration: true}
  defaults: {logFormat: json}
  cacheServer: {}
  shards:
  - {name: alpha, audit: {policy: {configMap: audit}, webhook: {secret: collector, mode: blocking}}}
`

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create], resources: [{resources: [configmaps]}]}
`

// auditEvent has the fields of an event that the test compares.
type auditEvent struct {
	Kind, Verb  string
	Annotations map[string]string
	ObjectRef   struct{ Resource, Name string }
}

func (e auditEvent) of(name, path string) bool {
	return e.Kind == "Event" && e.ObjectRef.Name == name && e.Annotations["kcp.io/path"] == path
}

// collector receives events.
type collector struct {
	mu     sync.Mutex
	events []auditEvent
}

func (c *collector) add(request map[string]any) any {
	var list struct{ Items []auditEvent }
	if raw, err := json.Marshal(request); err == nil {
		_ = json.Unmarshal(raw, &list) // another request has no items
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range list.Items {
		e.Kind = "Event"
		c.events = append(c.events, e)
	}
	return map[string]any{}
}

func (c *collector) has(name, path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.of(name, path) {
			return nil
		}
	}
	return fmt.Errorf("no event of %s in %s, only %v", name, path, c.events)
}

// denySecretly denies requests for objects named forbidden, and has no opinion about others.
func denySecretly(request map[string]any) any {
	spec, _ := request["spec"].(map[string]any)
	resource, _ := spec["resourceAttributes"].(map[string]any)
	status := map[string]any{"allowed": false}
	if resource["name"] == "forbidden" {
		status = map[string]any{"allowed": false, "denied": true, "reason": "asked and denied"}
	}
	return map[string]any{"apiVersion": request["apiVersion"], "kind": request["kind"], "status": status}
}

// Settings of a setup have effects in a kcp that runs.
func TestLocalSettings(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	events := &collector{}
	s.Text = fmt.Sprintf(configured, s.Name)
	s.Write(t, s.Text)
	s.Beside(t, "audit.yaml", auditPolicy)
	s.Beside(t, "configmaps/audit/policy.yaml", auditPolicy)
	s.Beside(t, "secrets/authorizer/kubeconfig", framework.StartWebhook(t, denySecretly))
	s.Beside(t, "secrets/collector/kubeconfig", framework.StartWebhook(t, events.add))
	s.Up(t)

	framework.Step(t, "a request to a workspace is in the log of its shard", func(t *testing.T) {
		s.Kubectl(t, "create", "configmap", "recorded", "--namespace", "default").OK(t)
		framework.Eventually(t.Context(), t, func() error { return logged(s.Kcpctl(t, "logs", "root-shard").OK(t).Stdout) })
	})
	framework.Step(t, "a webhook receives the requests to another shard", func(t *testing.T) {
		create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.Stdin = onAlpha
		create.Run(t.Context(), t).OK(t)
		s.Kubectl(t, "wait", "workspace", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
		framework.Eventually(t.Context(), t, func() error {
			r := s.KubectlAs(t, []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:on-alpha"}, "create", "configmap", "sent", "--namespace", "default")
			if r.Code != 0 && !strings.Contains(r.Stderr, "AlreadyExists") && !strings.Contains(r.Stderr, "already exists") {
				return fmt.Errorf("%s", r.Stderr)
			}
			return events.has("sent", "root:on-alpha")
		})
	})
	framework.Step(t, "a webhook denies what roles allow", func(t *testing.T) {
		r := s.Kubectl(t, "get", "configmap", "forbidden", "--namespace", "default")
		require.NotZero(t, r.Code)
		require.Contains(t, r.Stderr, "asked and denied")
		s.Kubectl(t, "get", "configmap", "recorded", "--namespace", "default").OK(t)
	})
	framework.Step(t, "all components have the gates that their program knows", func(t *testing.T) {
		for name, instance := range s.Running(t) {
			pid, _, _ := strings.Cut(instance.ID, " ")
			args, err := os.ReadFile("/proc/" + pid + "/cmdline")
			require.NoError(t, err)
			require.Equal(t, !strings.HasSuffix(name, "-cache"),
				strings.Contains(string(args), "--feature-gates=LogicalClusterMigration=true,WorkspaceAuthentication=true\x00"), name)
			require.Contains(t, string(args), "--logging-format=json\x00", name)
		}
	})
	framework.Step(t, "logs are JSON", func(t *testing.T) {
		for _, c := range []string{"root-shard", "shard/alpha", "front-proxy/main", "cache-server"} {
			require.Regexp(t, `(?m)^\{"ts":`, s.Kcpctl(t, "logs", c).OK(t).Stdout, c)
		}
	})
}

const onAlpha = `apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: on-alpha}
spec: {location: {selector: {matchLabels: {name: alpha}}}}
`

// logged looks for the event of the object recorded among the lines of a log.
func logged(log string) error {
	for line := range strings.Lines(log) {
		var e auditEvent
		if json.Unmarshal([]byte(line), &e) == nil && e.Annotations["kcp.io/cluster"] == "root" && e.of("recorded", "") {
			return nil
		}
	}
	return fmt.Errorf("the log has no event of the object recorded")
}
