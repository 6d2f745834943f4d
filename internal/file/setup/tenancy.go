package setup

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// selector checks which workspaces may use a cluster.
func (v *validator) selector(p *field.Path, s *v1alpha1.WorkspaceSelector) {
	if s == nil {
		return
	}
	if len(s.Paths) == 0 {
		v.required(p.Child("paths"), "without paths, no workspace may use the cluster")
	}
	seen := map[string]bool{}
	for i, path := range s.Paths {
		at := p.Child("paths").Index(i)
		v.workspacePath(at, path)
		v.unique(at, path, seen)
	}
}

// tenancy checks what confines the objects of workspaces in a cluster.
func (v *validator) tenancy(p *field.Path, t *v1alpha1.Tenancy) {
	if t == nil {
		return
	}
	v.quantities(p.Child("quota"), t.Quota)
	for i, item := range t.LimitRange {
		v.limits(p.Child("limitRange").Index(i), item)
	}
	if t.Isolation != "" {
		oneOf(v, p.Child("isolation"), t.Isolation, v1alpha1.IsolationWorkspace, v1alpha1.IsolationNone)
	}
	seen := map[string]bool{}
	for i, name := range t.PriorityClasses {
		at := p.Child("priorityClasses").Index(i)
		v.subdomain(at, name)
		v.unique(at, name, seen)
	}
	seen = map[string]bool{}
	for i, key := range t.TolerationKeys {
		at := p.Child("tolerationKeys").Index(i)
		for _, problem := range validation.IsQualifiedName(key) {
			v.invalid(at, key, "%s", problem)
		}
		v.unique(at, key, seen)
	}
	v.labelMap(p.Child("nodeSelector"), t.NodeSelector)
}

// limits checks an item of a LimitRange.
func (v *validator) limits(p *field.Path, item v1alpha1.LimitRangeItem) {
	if item.Type == "" {
		v.required(p.Child("type"), "")
	} else {
		oneOf(v, p.Child("type"), item.Type, corev1.LimitTypeContainer, corev1.LimitTypePod,
			corev1.LimitTypePersistentVolumeClaim)
	}
	for _, f := range []struct {
		name string
		list corev1.ResourceList
	}{
		{"max", item.Max}, {"min", item.Min}, {"default", item.Default}, {"defaultRequest", item.DefaultRequest},
		{"maxLimitRequestRatio", item.MaxLimitRequestRatio},
	} {
		v.quantities(p.Child(f.name), f.list)
	}
}
