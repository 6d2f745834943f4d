package redact

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// The parts of a setup whose content kcpctl passes on without knowing it, by the names of their fields.
func freeForm() []string { return []string{"podTemplate", "service", "annotations", "spec"} }

// plainKeys are the names of fields of Kubernetes objects whose values are names and choices, never secrets.
func plainKeys() []string {
	return []string{
		"apiVersion", "kind", "name", "namespace", "image", "imagePullPolicy", "mountPath", "subPath", "type", "key",
		"operator", "effect", "topologyKey", "whenUnsatisfiable", "serviceAccountName", "priorityClassName",
		"runtimeClassName", "schedulerName", "dnsPolicy", "restartPolicy", "protocol", "claimName", "secretName",
		"storageClassName", "path", "fieldPath", "cpu", "memory", "group", "version", "versions", "resource", "kinds",
	}
}

// secretPlaces are the names of fields whose values are removed from all texts, too: they hold secrets most often.
func secretPlaces() []string {
	return []string{"value", "args", "command", "extraArgs", "annotations", "data", "stringData", "binaryData",
		"httpHeaders", "exec"}
}

// setups redacts one setup.
type setups struct {
	*Redactor
	secret *regexp.Regexp
}

// Setup returns a setup as YAML without what can be a secret in it: the values of flags, and the strings in parts that
// are passed on as they are, such as the variables in a podTemplate. What is removed there is also removed from texts
// from now on.
func (r *Redactor) Setup(s *v1alpha1.Setup) ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("redact the setup: %w", err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("redact the setup: %w", err)
	}
	spec, _ := all["spec"].(map[string]any)
	w := setups{r, regexp.MustCompile(`(?i)token|secret|passw|credential|key|auth`)}
	for name, field := range spec {
		spec[name] = w.known(name, field)
	}
	out, err := yaml.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("redact the setup: %w", err)
	}
	return r.Text(out), nil
}

// known redacts a field that kcpctl knows.
func (w setups) known(name string, value any) any {
	switch {
	case name == "extraArgs":
		return w.flags(value)
	case slices.Contains(freeForm(), name):
		return w.free(name, value, slices.Contains(secretPlaces(), name))
	}
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			v[key] = w.known(key, field)
		}
	case []any:
		for i, item := range v {
			v[i] = w.known(name, item)
		}
	}
	return value
}

// free redacts a field that kcpctl passes on. Values in a secret place are removed from texts, too.
func (w setups) free(name string, value any, secret bool) any {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			v[key] = w.free(key, field, secret || slices.Contains(secretPlaces(), key))
		}
	case []any:
		if name == "args" || name == "command" {
			return w.flags(v)
		}
		for i, item := range v {
			v[i] = w.free(name, item, secret)
		}
	case string:
		return w.text(name, v, secret)
	}
	return value
}

// text redacts a string.
func (w setups) text(name, value string, secret bool) string {
	plain := slices.Contains(plainKeys(), name)
	switch {
	case w.harmless.MatchString(value), plain && !secret:
		return value
	case secret, w.secret.MatchString(name):
		w.Know(value)
	}
	return Mark
}

// flags redacts the values of flags, and keeps their names.
func (w setups) flags(value any) any {
	all, _ := value.([]any)
	for i, item := range all {
		text, _ := item.(string)
		name, flag, hasValue := strings.Cut(text, "=")
		switch {
		case !strings.HasPrefix(text, "-") && !w.harmless.MatchString(text):
			w.Know(text)
			all[i] = Mark
		case strings.HasPrefix(text, "-") && hasValue && !w.harmless.MatchString(flag):
			w.Know(flag)
			all[i] = name + "=" + Mark
		}
	}
	return value
}
