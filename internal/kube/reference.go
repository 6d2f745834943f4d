package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
)

// reference is the use of a Secret or ConfigMap by a pod.
type reference struct {
	kind, name string
	// key is what is used of it; empty is all.
	key string
	// by is the object and its field.
	by string
}

// references returns an error with all Secrets and ConfigMaps that pods of a site use and that neither exist nor are among
// the objects that will be applied.
func (s *site) references(ctx context.Context, objects []render.Object) error {
	var all []reference
	ours := map[string]bool{}
	for _, o := range objects {
		ours[o.GetKind()+"/"+o.GetName()] = true
		refs, err := podReferences(o.Unstructured)
		if err != nil {
			return err
		}
		all = append(all, refs...)
	}
	all = slices.DeleteFunc(all, func(r reference) bool { return ours[r.kind+"/"+r.name] })
	missing := make([]string, len(all))
	if err := concurrently(ctx, indices(all), func(ctx context.Context, i int) error {
		live, err := s.get(ctx, known(all[i].kind).GroupVersionKind, all[i].name)
		missing[i] = all[i].missing(s.Namespace, live)
		return err
	}); err != nil {
		return err
	}
	users := map[string][]string{}
	for i, m := range missing {
		if m != "" {
			users[m] = append(users[m], all[i].by)
		}
	}
	if len(users) == 0 {
		return nil
	}
	var lines []string
	for _, m := range slices.Sorted(maps.Keys(users)) {
		line := "\n  " + m + ", used by " + users[m][0]
		if n := len(users[m]) - 1; n > 0 {
			line += fmt.Sprintf(" and %d more", n)
		}
		lines = append(lines, line)
	}
	return clierr.New(clierr.Failed, "create what is missing, or correct the setup file",
		"the setup refers to what does not exist (%s):%s", s.where(), strings.Join(lines, ""))
}

// missing says what is missing of a reference: nothing if it is empty.
func (r reference) missing(namespace string, live *unstructured.Unstructured) string {
	object := r.kind + "/" + namespace + "/" + r.name
	if live == nil {
		return object
	}
	for _, field := range []string{"data", "binaryData"} {
		entries, _, _ := unstructured.NestedMap(live.Object, field)
		if _, ok := entries[r.key]; ok || r.key == "" {
			return ""
		}
	}
	return "key " + r.key + " of " + object
}

// podReferences are the Secrets and ConfigMaps that the pods of a workload cannot start without.
func podReferences(o *unstructured.Unstructured) ([]reference, error) {
	raw, ok, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil || !ok {
		return nil, err
	}
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
		return nil, fmt.Errorf("read the pods of %s: %w", plan.RefOf("", o), err)
	}
	c := collector{owner: o.GetKind() + "/" + o.GetName()}
	for _, s := range spec.ImagePullSecrets {
		c.add("Secret", s.Name, "", nil, "imagePullSecrets")
	}
	for _, v := range spec.Volumes {
		c.volume(v)
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		c.container(container)
	}
	return c.found, nil
}

// collector collects the references of a workload.
type collector struct {
	owner string
	found []reference
}

func (c *collector) add(kind, name, key string, optional *bool, field string) {
	if name != "" && (optional == nil || !*optional) {
		c.found = append(c.found, reference{kind: kind, name: name, key: key, by: c.owner + " (" + field + ")"})
	}
}

func (c *collector) items(kind, name string, items []corev1.KeyToPath, optional *bool, field string) {
	if len(items) == 0 {
		c.add(kind, name, "", optional, field)
	}
	for _, i := range items {
		c.add(kind, name, i.Key, optional, field)
	}
}

func (c *collector) volume(v corev1.Volume) {
	field := "volume " + v.Name
	if s := v.Secret; s != nil {
		c.items("Secret", s.SecretName, s.Items, s.Optional, field)
	}
	if m := v.ConfigMap; m != nil {
		c.items("ConfigMap", m.Name, m.Items, m.Optional, field)
	}
	if v.Projected == nil {
		return
	}
	for _, src := range v.Projected.Sources {
		if s := src.Secret; s != nil {
			c.items("Secret", s.Name, s.Items, s.Optional, field)
		}
		if m := src.ConfigMap; m != nil {
			c.items("ConfigMap", m.Name, m.Items, m.Optional, field)
		}
	}
}

func (c *collector) container(k corev1.Container) {
	for _, e := range k.Env {
		field := "variable " + e.Name + " of container " + k.Name
		if e.ValueFrom == nil {
			continue
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			c.add("Secret", s.Name, s.Key, s.Optional, field)
		}
		if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
			c.add("ConfigMap", m.Name, m.Key, m.Optional, field)
		}
	}
	for _, e := range k.EnvFrom {
		field := "variables of container " + k.Name
		if s := e.SecretRef; s != nil {
			c.add("Secret", s.Name, "", s.Optional, field)
		}
		if m := e.ConfigMapRef; m != nil {
			c.add("ConfigMap", m.Name, "", m.Optional, field)
		}
	}
}
