package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Marshal encodes a setup as YAML, with fields in the order of the API types. Parse returns the same setup.
func Marshal(s *v1alpha1.Setup) ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("marshal setup: %w", err)
	}
	// JSON is YAML in flow style: parse it as YAML, and encode it in block style.
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("marshal setup: %w", err)
	}
	blockStyle(&doc)
	shortDurations(s, doc.Content[0])
	return Encode(&doc)
}

// Encode writes a tree of a setup file as YAML, in the style of Marshal.
func Encode(n *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(n); err != nil {
		return nil, fmt.Errorf("write the setup: %w", err)
	}
	return out.Bytes(), enc.Close()
}

// blockStyle sets block style for a node. Empty objects and lists remain {} and [].
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// shortDurations shortens durations: 8760h instead of 8760h0m0s.
func shortDurations(s *v1alpha1.Setup, root *yaml.Node) {
	shorten := func(n *yaml.Node, key string, d metav1.Duration) {
		if value := lookup(n, key); value != nil {
			value.Value = inHours(d.Duration)
		}
	}
	spec := lookup(root, "spec")
	if pki := lookup(spec, "pki"); pki != nil {
		shorten(pki, "caValidity", s.Spec.PKI.CAValidity)
		shorten(pki, "certificateValidity", s.Spec.PKI.CertificateValidity)
	}
	webhook := func(at *yaml.Node, t v1alpha1.TokenAuthentication) {
		if t.Webhook != nil {
			shorten(lookup(lookup(at, "authentication"), "webhook"), "cacheTTL", t.Webhook.CacheTTL)
		}
	}
	webhook(spec, s.Spec.Authentication.TokenAuthentication)
	for i := range s.Spec.FrontProxies {
		webhook(lookup(spec, "frontProxies").Content[i], s.Spec.FrontProxies[i].Authentication.TokenAuthentication)
	}
	for i, k := range s.Spec.Kubeconfigs {
		shorten(lookup(spec, "kubeconfigs").Content[i], "validity", k.Validity)
	}
}

// inHours formats a duration without trailing zero parts.
func inHours(d time.Duration) string {
	s := d.String()
	if rest, ok := strings.CutSuffix(s, "m0s"); ok {
		s = rest + "m"
	}
	if rest, ok := strings.CutSuffix(s, "h0m"); ok {
		s = rest + "h"
	}
	return s
}
