package syncer

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

var networkPolicyKind = schema.GroupKind{Group: networkPolicies.Group, Kind: "NetworkPolicy"}

// families are all addresses, by family.
var families = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// metadataAddresses are the addresses at which clouds give a node its credentials: the same for AWS, Azure, Google,
// OpenStack and others.
var metadataAddresses = []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32"),
	netip.MustParsePrefix("fd00:ec2::254/128")}

// isolationSpec returns the spec of the NetworkPolicy of a namespace. Pods of the workspace may connect, pods of
// namespaces without a workspace, such as an ingress controller, and clients from outside of the cluster: all addresses
// but the ranges of pods. If these are not known, any address can be a pod of another workspace, and none is permitted:
// closed rather than open.
func isolationSpec(setup, workspace string, pods []netip.Prefix) map[string]any {
	from := []any{
		map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{api.LabelSetup: setup,
			api.LabelWorkspace: workspace}}},
		map[string]any{"namespaceSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": api.LabelSetup, "operator": "DoesNotExist"},
		}}},
	}
	if len(pods) > 0 {
		from = append(from, blocks(pods)...)
	}
	return map[string]any{
		"podSelector": map[string]any{},
		"policyTypes": []any{"Ingress", "Egress"},
		"ingress":     []any{map[string]any{"from": from}},
		"egress":      []any{map[string]any{"to": allButMetadata()}},
	}
}

// allButMetadata are the peers to which pods may connect.
func allButMetadata() []any {
	return append([]any{map[string]any{"namespaceSelector": map[string]any{}}}, blocks(metadataAddresses)...)
}

// blocks returns peers for all addresses without some.
func blocks(without []netip.Prefix) []any {
	var out []any
	for _, family := range families {
		out = append(out, block(family, without))
	}
	return out
}

// block returns a peer for the addresses of a prefix without some.
func block(p netip.Prefix, without []netip.Prefix) map[string]any {
	ip := map[string]any{"cidr": p.String()}
	var except []any
	for _, w := range without {
		if p.Overlaps(w) && w.Bits() > p.Bits() {
			except = append(except, w.String())
		}
	}
	if len(except) > 0 {
		ip["except"] = except
	}
	return map[string]any{"ipBlock": ip}
}

// hideMetadata removes the addresses of metadata from the destinations that a NetworkPolicy of a user permits: another
// policy cannot forbid them.
func hideMetadata(o *unstructured.Unstructured) {
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "egress")
	if rules == nil {
		return
	}
	out := []any{}
	for _, r := range rules {
		rule, ok := r.(map[string]any)
		if !ok {
			continue
		}
		peers, _ := rule["to"].([]any)
		if len(peers) == 0 {
			rule["to"] = allButMetadata()
			out = append(out, rule)
			continue
		}
		left := []any{}
		for _, p := range peers {
			if p = withoutMetadata(p); p != nil {
				left = append(left, p)
			}
		}
		if rule["to"] = left; len(left) > 0 { // a rule without peers would permit all
			out = append(out, rule)
		}
	}
	_ = unstructured.SetNestedSlice(o.Object, out, "spec", "egress")
}

// withoutMetadata returns a peer without the addresses of metadata, or nil if nothing is left.
func withoutMetadata(peer any) any {
	p, _ := peer.(map[string]any)
	ip, ok := p["ipBlock"].(map[string]any)
	if !ok {
		return peer
	}
	text, _ := ip["cidr"].(string)
	cidr, err := netip.ParsePrefix(text)
	if err != nil {
		return peer // restrict refuses it
	}
	except, _ := ip["except"].([]any)
	for _, m := range metadataAddresses {
		switch {
		case !cidr.Overlaps(m):
		case cidr.Bits() >= m.Bits():
			return nil
		case !slices.Contains(except, any(m.String())):
			except = append(slices.Clone(except), m.String())
		}
	}
	if len(except) > 0 {
		ip["except"] = except
	}
	return p
}

// unreadable returns a range of addresses in what a NetworkPolicy permits to connect to that has another form than
// the usual one, such as with leading zeros, or "". API servers of many releases accept some of them, so whether it
// has an address of metadata is not known.
func unreadable(o *unstructured.Unstructured) string {
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "egress")
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		peers, _ := rule["to"].([]any)
		for _, p := range peers {
			peer, _ := p.(map[string]any)
			ip, has := peer["ipBlock"].(map[string]any)
			text, _ := ip["cidr"].(string)
			if cidr, err := netip.ParsePrefix(text); has && (err != nil || cidr.Addr().Is4In6()) {
				return text
			}
		}
	}
	return ""
}

// merged returns the smallest list of prefixes with the same addresses, sorted: each node of a cluster has a part of
// one range.
func merged(in []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	sorted := slices.Clone(in)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) {
			continue // the larger one comes first
		}
		out = append(out, p)
		for n := len(out); n > 1; n = len(out) {
			parent := netip.PrefixFrom(out[n-1].Addr(), out[n-1].Bits()-1).Masked()
			if a, b := out[n-2], out[n-1]; a.Bits() != b.Bits() || b.Bits() <= 1 || !parent.Contains(a.Addr()) {
				break
			}
			out = append(out[:n-2], parent)
		}
	}
	return out
}
