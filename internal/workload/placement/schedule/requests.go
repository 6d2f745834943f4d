package schedule

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Requests returns what a pod requests from its node, and that it is one pod: the sum of its containers and of the init
// containers that keep running, or a larger init container, and the overhead. See kubernetes:
// staging/src/k8s.io/component-helpers/resource/helpers.go.
func Requests(spec *corev1.PodSpec) corev1.ResourceList {
	total := corev1.ResourceList{}
	sidecars := corev1.ResourceList{}
	first := corev1.ResourceList{}
	for _, c := range spec.Containers {
		Add(total, c.Resources.Requests)
	}
	for _, c := range spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			Add(total, c.Resources.Requests)
			Add(sidecars, c.Resources.Requests)
			larger(first, sidecars)
			continue
		}
		now := sidecars.DeepCopy()
		Add(now, c.Resources.Requests)
		larger(first, now)
	}
	larger(total, first)
	Add(total, spec.Overhead)
	total[corev1.ResourcePods] = resource.MustParse("1")
	return total
}

// Add adds resources to others.
func Add(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

// larger raises resources to others.
func larger(to, other corev1.ResourceList) {
	for name, q := range other {
		if have := to[name]; q.Cmp(have) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}
