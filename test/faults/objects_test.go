package faults

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/test/standin"
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// written returns the namespaced kinds of objects that kcpctl writes.
func written() []schema.GroupVersionResource {
	core := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: name}
	}
	return []schema.GroupVersionResource{
		standin.Secrets, standin.ConfigMaps, core("services"), standin.Claims, standin.Deployments, standin.StatefulSets, leases,
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	}
}

// objects returns the objects of these kinds in the namespace by kind and name, without the values that differ between
// two runs of the same command.
func (p *place) objects(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, r := range written() {
		l, err := p.world.Admin.Resource(r).Namespace(p.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range l.Items {
			o := &l.Items[i]
			text, err := p.normal(o)
			if err != nil {
				return nil, err
			}
			out[o.GetKind()+"/"+o.GetName()] = text
		}
	}
	return out, nil
}

// others returns the objects of all other kinds, except pods and events, in all namespaces of the tests.
func (w *world) others(ctx context.Context) ([]string, error) {
	var out []string
	for _, r := range w.resources {
		if slices.Contains(written(), r) {
			continue
		}
		l, err := w.Admin.Resource(r).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range l.Items {
			if o := &l.Items[i]; strings.HasPrefix(o.GetNamespace(), namespacePrefix) {
				out = append(out, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
			}
		}
	}
	return out, nil
}

// normal returns an object as text, with its generated values replaced.
func (p *place) normal(o *unstructured.Unstructured) (string, error) {
	o = o.DeepCopy()
	managers, err := ownManagers(o)
	if err != nil {
		return "", err
	}
	for _, path := range [][]string{
		{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"},
		{"metadata", "managedFields"}, {"status"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"},
		{"spec", "leaseTransitions"}, {"spec", "holderIdentity"}, {"spec", "acquireTime"}, {"spec", "renewTime"},
	} {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	if o.GetKind() == "Secret" {
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		for k, v := range data {
			raw, err := base64.StdEncoding.DecodeString(v)
			if err != nil {
				return "", err
			}
			data[k] = string(raw)
		}
		_ = unstructured.SetNestedStringMap(o.Object, data, "data")
	}
	walk(o.Object, func(s string) string { return p.anywhere(describeAll(s)) })
	text, err := json.MarshalIndent(o.Object, "", " ")
	return serial.ReplaceAllString(string(text), `"serial":"N"`) + "\n" + managers, err
}

// ownManagers returns the fields that kcpctl manages, and by which operation.
func ownManagers(o *unstructured.Unstructured) (string, error) {
	if o.GetKind() == "Lease" {
		return "", nil
	}
	var all []string
	for _, m := range o.GetManagedFields() {
		if !strings.HasPrefix(m.Manager, topology.ManagedBy) {
			continue
		}
		m.Time = nil
		raw, err := json.Marshal(m)
		if err != nil {
			return "", err
		}
		all = append(all, string(raw))
	}
	slices.Sort(all)
	return strings.Join(all, "\n"), nil
}

// walk replaces all strings of an object.
func walk(v any, change func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = walk(v[k], change)
		}
		if _, ok := v[topology.AnnotationChecksum]; ok {
			v[topology.AnnotationChecksum] = "CHECKSUM"
		}
	case []any:
		for i := range v {
			v[i] = walk(v[i], change)
		}
	case string:
		return change(v)
	}
	return v
}

var (
	applySet = regexp.MustCompile(`applyset-[A-Za-z0-9_-]+-v1`)
	moment   = regexp.MustCompile(`"(time|authoritiesApplied|authoritiesAppliedAt)":"[^"]*"`)
	identity = regexp.MustCompile(`"/?` + setupName + `-[a-z2-7]{8}"|^` + setupName + `-[a-z2-7]{8}$`)
	serial   = regexp.MustCompile(`"serial":\s*"?[0-9]+"?`)                    // it grows with each run that changes the record
	renewals = regexp.MustCompile(`"renewals":[0-9]+`)                         // a command that is repeated renews again
	uid      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`) // of a claim
	finger   = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	packed   = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]+`) // PEM in base64, as kubeconfigs have it
)

// anywhere replaces values of the place in a text.
func (p *place) anywhere(s string) string {
	s = strings.NewReplacer(p.Namespace, "NAMESPACE", p.dir, "DIRECTORY").Replace(s)
	for _, one := range []struct {
		found *regexp.Regexp
		said  string
	}{{moment, `"$1":"TIME"`}, {applySet, "APPLYSET"}, {identity, `"INSTALLATION"`}, {finger, "FINGERPRINT"}, {uid, "UID"}, {serial, `"serial":"N"`}, {renewals, `"renewals":"N"`}} {
		s = one.found.ReplaceAllString(s, one.said)
	}
	return s
}

// describeAll replaces certificates and keys in a text by a description.
func describeAll(s string) string {
	s = packed.ReplaceAllStringFunc(s, func(b64 string) string {
		raw, err := base64.StdEncoding.DecodeString(b64)
		if err != nil {
			return b64
		}
		return describeAll(string(raw))
	})
	var out strings.Builder
	for {
		at := strings.Index(s, "-----BEGIN ")
		if at < 0 {
			break
		}
		block, rest := pem.Decode([]byte(s[at:]))
		if block == nil {
			break
		}
		out.WriteString(s[:at] + describe(block))
		s = string(rest)
	}
	return out.String() + s
}

func describe(b *pem.Block) string {
	if b.Type != "CERTIFICATE" {
		return "(" + b.Type + ")"
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return err.Error()
	}
	kind := "certificate"
	if c.IsCA {
		kind = "authority"
	}
	slices.Sort(c.DNSNames)
	var signed string
	if bytes.Equal(c.RawIssuer, c.RawSubject) {
		signed = " self-signed"
	}
	return fmt.Sprintf("(%s%s %s of %s for %v %v usages %v valid %s)", kind, signed, c.Subject, c.Issuer, c.DNSNames, c.IPAddresses,
		c.ExtKeyUsage, c.NotAfter.Sub(c.NotBefore).Round(time.Minute))
}
