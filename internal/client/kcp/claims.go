package kcp

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AllVerbs is the verb that stands for all of them. kcp compares the verbs of an APIBinding and of its APIExport as
// texts, so all verbs in one of them and some in the other allow nothing (kcp:
// pkg/virtual/apiexport/authorizer/binding.go).
const AllVerbs = "*"

// stateAccepted is the state of a permission claim that a consumer has accepted.
const stateAccepted = "Accepted"

// Claim is a permission claim: an APIExport requests it, and an APIBinding accepts it.
type Claim struct {
	schema.GroupResource
	// IdentityHash is the identity hash of the APIExport that provides the resource. It is empty for resources of kcp
	// itself.
	IdentityHash string
	Verbs        []string
	// selector is the selector of an APIBinding, or the default one of an APIExport. Nil: all objects.
	selector map[string]any
}

// String returns what a claim is about, such as secrets or widgets.example.com.
func (c Claim) String() string { return c.GroupResource.String() }

// same reports whether two claims are about the same resource.
func (c Claim) same(other Claim) bool {
	return c.GroupResource == other.GroupResource && c.IdentityHash == other.IdentityHash
}

// Asked returns the permission claims of an APIExport.
func Asked(export *unstructured.Unstructured) []Claim { return claimsOf(export, "defaultSelector", "") }

// Accepted returns the permission claims that an APIBinding accepts.
func Accepted(binding *unstructured.Unstructured) []Claim {
	return claimsOf(binding, "selector", stateAccepted)
}

func claimsOf(o *unstructured.Unstructured, selector, state string) []Claim {
	if o == nil {
		return nil
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "spec", "permissionClaims")
	var out []Claim
	for _, item := range all {
		fields, _ := item.(map[string]any)
		text := func(key string) string { s, _ := fields[key].(string); return s }
		if state != "" && text("state") != state {
			continue
		}
		c := Claim{GroupResource: schema.GroupResource{Group: text("group"), Resource: text("resource")},
			IdentityHash: text("identityHash")}
		c.Verbs, _, _ = unstructured.NestedStringSlice(fields, "verbs")
		if c.selector, _ = fields[selector].(map[string]any); c.selector["matchAll"] == true {
			c.selector = nil
		}
		out = append(out, c)
	}
	return out
}

// Accept returns the claims that are both allowed and asked for, each with the verbs that are both. Never more than
// what is allowed.
func Accept(allowed, asked []Claim) (out []Claim) {
	for _, a := range asked {
		if i := slices.IndexFunc(allowed, a.same); i >= 0 {
			next := allowed[i]
			next.Verbs = verbsOfBoth(next.Verbs, a.Verbs)
			if next.selector == nil { // all objects
				next.selector = a.selector
			}
			out = append(out, next)
		}
	}
	return out
}

// verbsOfBoth returns the verbs that two claims have. Without any, it returns those that are allowed: an APIBinding
// must have some.
func verbsOfBoth(allowed, asked []string) []string {
	if slices.Contains(allowed, AllVerbs) {
		return asked
	}
	both := slices.DeleteFunc(slices.Clone(allowed), func(v string) bool { return !slices.Contains(asked, v) })
	if len(both) == 0 {
		return allowed
	}
	return both
}

// Beyond returns the claims that go beyond others: of another resource, or with more verbs.
func Beyond(claims, others []Claim) []Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool {
		return slices.ContainsFunc(others, func(o Claim) bool {
			return c.same(o) && !slices.ContainsFunc(c.Verbs, func(v string) bool {
				return !slices.Contains(o.Verbs, v) && !slices.Contains(o.Verbs, AllVerbs)
			})
		})
	})
}

// SetAccepted makes an APIBinding accept claims, and no others.
func SetAccepted(binding *unstructured.Unstructured, claims []Claim) error {
	unstructured.RemoveNestedField(binding.Object, "spec", "permissionClaims")
	if len(claims) == 0 {
		return nil
	}
	var out []any
	for _, c := range claims {
		claim := map[string]any{"group": c.Group, "resource": c.Resource, "state": stateAccepted,
			"selector": map[string]any{"matchAll": true}}
		if c.IdentityHash != "" {
			claim["identityHash"] = c.IdentityHash
		}
		if c.selector != nil {
			claim["selector"] = maps.Clone(c.selector)
		}
		var verbs []any
		for _, v := range c.Verbs {
			verbs = append(verbs, v)
		}
		if len(verbs) > 0 {
			claim["verbs"] = verbs
		}
		out = append(out, claim)
	}
	return unstructured.SetNestedSlice(binding.Object, out, "spec", "permissionClaims")
}

// Describe returns a claim of an object with the field manager that wrote it: secrets (get, list), written by
// kubectl-patch.
func Describe(o *unstructured.Unstructured, c Claim) string {
	out := c.String() + " (" + strings.Join(c.Verbs, ", ") + ")"
	if manager := ClaimManager(o, c); manager != "" {
		out += ", written by " + manager
	}
	return out
}

// ClaimManager returns the field manager that wrote a claim of an APIExport or of an APIBinding last, or "". The names
// of managers are what their clients say: a name is a trace, and no proof.
func ClaimManager(o *unstructured.Unstructured, c Claim) string {
	var last *metav1.ManagedFieldsEntry
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && ownsClaim(m, c) &&
			(last == nil || last.Time == nil || m.Time != nil && !m.Time.Before(last.Time)) {
			last = &m
		}
	}
	if last == nil {
		return ""
	}
	return last.Manager
}

// ownsClaim reports whether a field manager has written a claim, or the list of all of them.
func ownsClaim(m metav1.ManagedFieldsEntry, c Claim) bool {
	if m.FieldsV1 == nil {
		return false
	}
	var fields map[string]any
	if json.Unmarshal(m.FieldsV1.Raw, &fields) != nil {
		return false
	}
	list, found, err := unstructured.NestedMap(fields, "f:spec", "f:permissionClaims")
	if err != nil || !found {
		return false
	}
	keyed := false
	for item := range list {
		key, isKey := strings.CutPrefix(item, "k:")
		var of struct{ Group, Resource string }
		if !isKey || json.Unmarshal([]byte(key), &of) != nil {
			continue
		}
		keyed = true
		if of.Group == c.Group && of.Resource == c.Resource {
			return true
		}
	}
	return !keyed
}
