package importer

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// whole is an installation with an object of every kind. Its fields are those without which others would be refused.
const whole = `
RootShard:
  apiVersion: operator.kcp.io/v1alpha1
  kind: RootShard
  metadata: {name: root, namespace: kcp}
  spec:
    external: {hostname: kcp.example.com, port: 6443}
    etcd: {endpoints: ["https://etcd:2379"], tlsConfig: {secretRef: {name: etcd}}}
    auth:
      oidc: {issuerURL: "https://login.example.com", clientID: kcp, caFileRef: {name: login, key: ca.crt}}
      tokenAuthFile: {secretName: tokens}
      webhook: {configSecretName: webhook}
    audit: {policy: {configMap: {name: policy, key: policy.yaml}}}
    authorization: {webhook: {configSecretName: webhook}}
Shard:
  apiVersion: operator.kcp.io/v1alpha1
  kind: Shard
  metadata: {name: alpha, namespace: kcp}
  spec:
    rootShard: {ref: {name: root}}
    etcd: {endpoints: ["https://etcd:2379"], prefix: /alpha, tlsConfig: {secretRef: {name: etcd}}}
    auth:
      oidc: {issuerURL: "https://login.example.com", clientID: kcp, caFileRef: {name: login, key: ca.crt}}
      tokenAuthFile: {secretName: tokens}
      webhook: {configSecretName: webhook}
    audit: {policy: {configMap: {name: policy, key: policy.yaml}}}
    authorization: {webhook: {configSecretName: webhook}}
    cache: {ref: {name: cache}}
    kcpVirtualWorkspace: {name: vw}
FrontProxy:
  apiVersion: operator.kcp.io/v1alpha1
  kind: FrontProxy
  metadata: {name: main, namespace: kcp}
  spec:
    rootShard: {ref: {name: root}}
    external: {hostname: kcp.example.com, port: 6443}
    auth:
      oidc: {issuerURL: "https://login.example.com", clientID: kcp, caFileRef: {name: login, key: ca.crt}}
      tokenAuthFile: {secretName: tokens}
      webhook: {configSecretName: webhook}
    additionalPathMappings:
    - {path: /services/a/, backend: "https://a:6443", backend_server_ca: /etc/kcp/tls/ca/tls.crt,
       proxy_client_cert: /etc/kcp-front-proxy/requestheader-client/tls.crt, proxy_client_key: /etc/kcp-front-proxy/requestheader-client/tls.key}
CacheServer:
  apiVersion: operator.kcp.io/v1alpha1
  kind: CacheServer
  metadata: {name: cache, namespace: kcp}
  spec:
    etcd: {endpoints: ["https://etcd:2379"], tlsConfig: {secretRef: {name: etcd}}}
VirtualWorkspace:
  apiVersion: operator.kcp.io/v1alpha1
  kind: VirtualWorkspace
  metadata: {name: vw, namespace: kcp}
  spec:
    target: {shardRef: {name: alpha}}
    external: {hostname: vw.example.com}
    initContainers: [{name: init}]
Kubeconfig:
  apiVersion: operator.kcp.io/v1alpha1
  kind: Kubeconfig
  metadata: {name: admin, namespace: kcp}
  spec: {username: admin, validity: 8766h, secretRef: {name: admin}, target: {frontProxyRef: {name: main}}}
`

// flipped are the fields of a list with values that are not their defaults, as JSON after the field.
func flipped(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/fields/" + name + ".txt")
	require.NoError(t, err)
	out := map[string]any{}
	for line := range strings.Lines(string(text)) {
		path, raw, given := strings.Cut(strings.TrimSpace(line), " ")
		var v any
		if given {
			require.NoError(t, json.Unmarshal([]byte(raw), &v), line)
			out[path] = v
		}
	}
	require.NotEmpty(t, out)
	return out
}

// with sets a field of an object. A segment with [] is the first item of a list.
func with(o map[string]any, path string, v any) {
	segments := strings.Split(path, ".")
	for i, s := range segments {
		key, list := strings.CutSuffix(s, "[]")
		if i == len(segments)-1 {
			o[key] = v
			return
		}
		if list {
			items, _ := o[key].([]any)
			if len(items) == 0 {
				items = []any{map[string]any{}}
			}
			o[key] = items
			o = items[0].(map[string]any)
			continue
		}
		next, ok := o[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			o[key] = next
		}
		o = next
	}
}

// sameFields are fields that name the same as others of an object, so that they are flipped together.
var sameFields = map[string]map[string]any{
	"FrontProxy " +
		"spec.certificateTemplates.server.spec.issuerRef.group": {"spec.certificateTemplates.server.spec.issuerRef.name": "edge"},
	"FrontProxy " +
		"spec.certificateTemplates.server.spec.issuerRef.kind": {"spec.certificateTemplates.server.spec.issuerRef.name": "edge"},
	"FrontProxy spec.external.port":                  {"spec.external.hostname": "kcp.example.com"},
	"FrontProxy spec.externalHostname":               {"spec.external": nil},
	"VirtualWorkspace spec.external.port":            {"spec.external.hostname": "vw.example.com"},
	"VirtualWorkspace spec.kubeconfigSecretRef.name": {"spec.command": []any{"/server"}},
	"chart " +
		"kcp.hostAliases.enabled": {"kcp.hostAliases.values": []any{map[string]any{"ip": "10.1.2.3", "hostnames": []any{"a"}}}},
	"chart kcpFrontProxy.hostAliases.enabled": {
		"kcpFrontProxy.hostAliases.values": []any{map[string]any{"ip": "10.1.2.3", "hostnames": []any{"a"}}},
	},
	"chart oidc.enabled":        {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp"},
	"chart oidc.groupClaim":     {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp"},
	"chart oidc.groupsPrefix":   {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp"},
	"chart oidc.usernameClaim":  {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp"},
	"chart oidc.usernamePrefix": {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp"},
	"chart oidc.issuerUrl":      {"oidc.clientId": "kcp"},
	"chart oidc.clientId":       {"oidc.issuerUrl": "https://login.example.com"},
	"chart oidc.caSecretName":   {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp"},
	"chart oidc.caSecretKeyName": {"oidc.issuerUrl": "https://login.example.com", "oidc.clientId": "kcp",
		"oidc.caSecretName": "ca"},
	"chart kcpFrontProxy.service.nodePort": {"kcpFrontProxy.service.type": "NodePort"},
}

// outcome is what an import makes of an input. An import that refuses the input has a message only.
func outcome(docs ...map[string]any) (*v1alpha1.Setup, []Finding, string) {
	var sources []Source
	for _, d := range docs {
		data, err := yaml.Marshal(d)
		if err != nil {
			return nil, nil, err.Error()
		}
		sources = append(sources, Source{Name: "in.yaml", Data: data})
	}
	r, err := Import(sources, Options{})
	if err != nil {
		return nil, nil, err.Error()
	}
	return r.File.Setup, r.Findings, ""
}

// kept reports whether an import keeps or names a field: the setup is another one, a finding or a problem names the
// field or one above it.
func kept(before *v1alpha1.Setup, path string, after *v1alpha1.Setup, findings []Finding, message string) bool {
	if after != nil && !reflect.DeepEqual(before, after) {
		return true
	}
	for at := path; at != ""; at = at[:max(strings.LastIndexByte(at, '.'), 0)] {
		for _, f := range findings {
			if slices.Contains(f.Paths, strings.ReplaceAll(at, "[]", "[0]")) || slices.Contains(f.Paths,
				strings.ReplaceAll(at, "[]", "")) {
				return true
			}
		}
		pattern := `(^|[^\w.])` + strings.ReplaceAll(regexp.QuoteMeta(at), `\[\]`, `(\[0\])?`) + `\b`
		if strings.Contains(at, ".") && regexp.MustCompile(pattern).MatchString(message) {
			return true
		}
	}
	return false
}

// Every field of kcp-operator's APIs that has another value changes the setup, or import names it.
func TestEveryFieldIsKeptOrNamed(t *testing.T) {
	objects := func() map[string]map[string]any {
		var out map[string]map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(whole), &out))
		return out
	}
	before, _, problem := outcome(inOrder(objects())...)
	require.Empty(t, problem)
	for kind := range objects() {
		for path, v := range flipped(t, kind) {
			all := objects()
			for also, value := range sameFields[kind+" "+path] {
				if value == nil {
					unstructured.RemoveNestedField(all[kind], strings.Split(also, ".")...)
					continue
				}
				with(all[kind], also, value)
			}
			with(all[kind], path, v)
			after, findings, message := outcome(inOrder(all)...)
			if !kept(before, path, after, findings, message) {
				t.Errorf("%s: %s = %v is lost: %s", kind, path, v, message)
			}
		}
	}
}

// inOrder returns the objects by kind.
func inOrder(all map[string]map[string]any) []map[string]any {
	var out []map[string]any
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[kind])
	}
	return out
}

// Every value of the chart that is not the default changes the setup, or import names it, whether what it configures is
// on or off.
func TestEveryValueIsKeptOrNamed(t *testing.T) {
	tree := newBranch(chartRows())
	for path, v := range flipped(t, "chart") {
		gate := tree.gate(path)
		for _, on := range []bool{true, false} {
			base := func() map[string]any {
				o := map[string]any{"externalHostname": "kcp.example.com"}
				if gate != "" {
					with(o, gate, on)
				}
				if !on && gate == "etcd.enabled" {
					with(o, "kcp.etcd.serverAddress", "http://etcd:2379")
				}
				return o
			}
			more := base()
			for also, value := range sameFields["chart "+path] {
				with(more, also, value)
			}
			if gate == "oidc.enabled" && !on {
				more = base()
			}
			before, _, problem := outcome(more)
			if path == "etcd.enabled" || path == "oidc.issuerUrl" || path == "oidc.clientId" {
				problem = "" // alone they are refused
			}
			require.Empty(t, problem, "%s %v", path, more)
			with(more, path, v)
			after, findings, message := outcome(more)
			if !kept(before, path, after, findings, message) {
				t.Errorf("%s = %v (%s: %v) is lost: %s", path, v, gate, on, message)
			}
		}
	}
}

// gate returns the gate of the row of a field.
func (b *branch) gate(path string) string {
	at := b
	for segment := range strings.SplitSeq(path, ".") {
		if at = at.child(segment); at == nil || at.row != nil {
			break
		}
	}
	if at == nil || at.row == nil {
		return ""
	}
	return at.row.gate
}

// What a setup file can say is not lost: no field has the theme of a row that is not mapped. A field that is added
// later makes the row fail here.
func TestLostFieldsHaveNoTarget(t *testing.T) {
	fields := fieldsOf("", reflect.TypeFor[v1alpha1.Setup](), nil)
	require.Contains(t, fields, "spec.frontProxies[].expose.className")
	require.Contains(t, fields, "spec.authentication.tokenFile.secret")
	for _, table := range append(tables(), table{chart, "values", chartRows()}) {
		for _, r := range table.rows {
			require.Equal(t, r.kind == NotMapped, r.theme != "", "%s %s", table.kind, r.path)
			if r.theme == "" {
				continue
			}
			theme := regexp.MustCompile(r.theme)
			for _, f := range fields {
				require.False(t, theme.MatchString(f), "%s %s is not mapped, and the setup file has %s", table.kind,
					r.path, f)
			}
		}
	}
	for _, known := range []string{`[eE]xpose`, `tokenFile`, `serving\.ca`,
		`authentication\.config`} { // what rows once lost
		require.True(t, slices.ContainsFunc(fields, regexp.MustCompile(known).MatchString), known)
	}
}

// fieldsOf returns the paths of all fields of a type. A type within itself is left out.
func fieldsOf(path string, t reflect.Type, within []reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasSuffix(t.PkgPath(), "v1alpha1") || slices.Contains(within, t) {
		return []string{path}
	}
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		at := strings.TrimPrefix(path+"."+name, ".")
		if name == "" {
			at = path
		}
		out = append(out, fieldsOf(at, t.Field(i).Type, append(slices.Clone(within), t))...)
	}
	return out
}
