package importer

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// owned takes a flag that extraArgs of a setup cannot set, and reports whether it is one. Its value moves to the field
// with the same meaning, or a finding has the reason why there is none. Fields move when all others are mapped, because
// the last value of a flag is the one in use.
func (o *object) owned(v value, name, text string) bool {
	name = strings.ReplaceAll(name, "_", "-") // as kcp reads names
	owner, ok := topology.OwnerOf(o.as, name)
	if !ok {
		return false
	}
	if owner.Field == "" {
		v.find(NotMapped, "extraArgs cannot set --"+name+": "+owner.Why, owner.Instead)
		return true
	}
	o.late = append(o.late, func() {
		if o.setField(v, name, text) {
			o.origins[owner.Field] = v
			return
		}
		v.find(NotMapped, "extraArgs cannot set --"+name, "set "+owner.Field)
	})
	return true
}

// setField sets the field that says the same as a flag. It reports whether import can do that.
func (o *object) setField(v value, flag, text string) bool {
	switch flag {
	case "etcd-servers":
		o.etcd.Endpoints = strings.Split(text, ",")
	case "etcd-prefix":
		if from, ok := o.origins["etcd.external.prefix"]; ok && from.at.String() == "spec.etcd.prefix" {
			v.find(NotNeeded, "kcp-operator sets the flag again, to spec.etcd.prefix", "")
			return true
		}
		o.etcd.Prefix = text
	case "etcd-cafile":
		return o.etcdFile("ca.crt", text)
	case "etcd-certfile":
		return o.etcdFile("tls.crt", text)
	case "etcd-keyfile":
		return o.etcdFile("tls.key", text)
	case "shard-base-url":
		o.url = text
	case "shard-virtual-workspace-url":
		o.virtualWorkspaceURL = text
	case "audit-policy-file":
		from := o.mounted(text)
		if from.ConfigMap == "" {
			return false
		}
		o.auditing().Policy.ConfigMap, o.audit.Policy.Key = from.ConfigMap, from.Key
	case "audit-webhook-config-file":
		return o.secretOf(text, func() *v1alpha1.SecretKey { return &o.auditWebhook().SecretKey })
	case "audit-webhook-mode":
		o.auditWebhook().Mode = text
	case "audit-log-mode":
		o.auditing().Log = &v1alpha1.AuditBackend{Mode: text}
	case "logging-format":
		o.component.LogFormat = text
	case "profiler-address":
		return o.setProfiler(text)
	case "enable-home-workspaces", "home-workspaces-home-creator-groups", "batteries-included":
		return o.setShared(flag, text)
	case "anonymous-auth":
		return text == "true" // the default
	case "authentication-drop-groups":
		o.auth.DropGroups = groups(text)
		v.find(Review, replacesGroups, checkGroups)
	case "authentication-pass-on-groups":
		o.auth.PassOnGroups = groups(text)
	default:
		return o.setAuthorization(flag, text)
	}
	return true
}

// groups are the groups in a flag, which may be empty.
func groups(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(g string) bool { return g == "" })
}

// etcdFile sets the Secret with the files for an etcd, if it has this one under a key that a setup expects.
func (o *object) etcdFile(key, path string) bool {
	from := o.mounted(path)
	if from.Secret == "" || from.Key != key || o.etcd.TLSSecret != "" && o.etcd.TLSSecret != from.Secret {
		return false
	}
	o.etcd.TLSSecret = from.Secret
	return true
}

// flags sets the fields that flags of extraArgs say, and moves the feature gates of all components to the setup if one
// of them is about mounts, which need certificates of all shards and front-proxies.
func (a *assembly) flags() {
	aboutMounts := false
	for _, o := range a.all() {
		for _, set := range o.late {
			set()
		}
		for name := range o.gates() {
			aboutMounts = aboutMounts || name == v1alpha1.GateWorkspaceMounts || name == gateAllAlpha
		}
	}
	if !aboutMounts {
		return
	}
	all := map[string]bool{v1alpha1.GateWorkspaceMounts: false}
	for _, o := range a.all() {
		gates := o.gates()
		if _, set := gates[v1alpha1.GateWorkspaceMounts]; gates[gateAllAlpha] && !set {
			gates[v1alpha1.GateWorkspaceMounts] = true
		}
		for name, on := range gates {
			if !release.HasGate(operatorTag, name) {
				o.argsFrom[flagGates].find(NotMapped, "kcp does not list the feature gate "+name, "")
				continue
			}
			all[name] = all[name] || on
		}
		if len(gates) > 0 {
			a.gates = append(a.gates, o.argsFrom[flagGates])
			o.component.ExtraArgs = slices.DeleteFunc(o.component.ExtraArgs,
				func(arg string) bool { return flagName(arg) == flagGates })
		}
	}
	a.setup.Spec.FeatureGates = all
}

const (
	flagGates    = "feature-gates"
	gateAllAlpha = "AllAlpha"
)

func (o *object) gates() map[string]bool {
	out := map[string]bool{}
	for _, arg := range o.component.ExtraArgs {
		if _, text, _ := strings.Cut(arg, "="); flagName(arg) == flagGates {
			for g := range strings.SplitSeq(text, ",") {
				name, on, _ := strings.Cut(g, "=")
				out[name] = on == "true"
			}
		}
	}
	return out
}

// mounts adds the findings about feature gates of mounts. With mounts, only front-proxies may reach shards. So the
// setup has no mounts if a shard is also reached from outside of its cluster.
func (a *assembly) mounts() {
	gates := a.setup.Spec.FeatureGates
	if !gates[v1alpha1.GateWorkspaceMounts] {
		return
	}
	shards := append([]*object{a.root}, a.reader.of(kindShard)...)
	exposed := slices.ContainsFunc(shards, a.exposed)
	gates[v1alpha1.GateWorkspaceMounts] = !exposed
	for _, v := range a.gates {
		if exposed {
			v.find(NotMapped, "WorkspaceMounts is off in spec.featureGates: with mounts, only front-proxies may reach "+
				"shards, and a shard of the input is also reached from outside of its cluster",
				"to keep mounts, remove url, virtualWorkspaceURL and service of all shards, and set "+
					"WorkspaceMounts to true")
			continue
		}
		v.find(Review, "feature gates of mounts are in spec.featureGates, for all shards and front-proxies",
			"remove WorkspaceMounts if no workspace is mounted")
	}
}

// exposed reports whether clients outside of its cluster reach a shard.
func (a *assembly) exposed(o *object) bool {
	for _, url := range []string{o.url, o.virtualWorkspaceURL} {
		if url != "" && !strings.Contains(url+":", ".svc."+a.domain()+":") {
			return true
		}
	}
	kind := o.component.Service["type"]
	return kind != nil && kind != string(v1alpha1.ExposeClusterIP)
}
