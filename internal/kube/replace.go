package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// replacePatience is how long it may take until all pods of a component are replaced.
const replacePatience = 5 * time.Minute

// Replace replaces the pods of a component one after another: each is deleted when all others are ready.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	ctx, cancel := context.WithTimeout(quiet(ctx), replacePatience)
	defer cancel()
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return err
	}
	w, err := r.workload(ctx, s, c)
	if err != nil {
		return err
	}
	for _, p := range w.Pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		if err := s.endPod(ctx, p); err != nil {
			return err
		}
		if err := r.untilReplaced(ctx, s, c, p); err != nil {
			return err
		}
	}
	return nil
}

// untilReplaced waits until as many pods are ready as there shall be, without one that was deleted.
func (r *Runtime) untilReplaced(ctx context.Context, s *site, c *topology.Component, deleted *corev1.Pod) error {
	return s.until(ctx, func() (string, error) {
		w, err := r.workload(ctx, s, c)
		if err != nil {
			return "", err
		}
		serve := int32(0)
		for _, p := range w.Pods {
			if p.UID != deleted.UID && ready.PodReady(p) {
				serve++
			}
		}
		if serve < c.Replicas {
			return fmt.Sprintf("%d of %d pods of %s to be ready", c.Replicas-serve, c.Replicas, c.ID()), nil
		}
		return "", nil
	})
}

// endPod deletes a pod, and not another that has taken its name. It may be gone.
func (s *site) endPod(ctx context.Context, p *corev1.Pod) error {
	err := s.resource(pods()).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return s.explain(err, "delete Pod/%s/%s", s.Namespace, p.Name)
	}
	return nil
}
