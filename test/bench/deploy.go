package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deploy lets every user create a number of Deployments, each some time after the last one. It returns the time of
// each, in seconds, from the request until it has arrived in its clusters.
func (f *field) deploy(ctx context.Context, each int, every time.Duration) ([]float64, error) {
	sent, problems := make([]map[string]time.Time, users), make([]error, users)
	var work sync.WaitGroup
	for u := range users {
		sent[u] = map[string]time.Time{}
		work.Go(func() {
			time.Sleep(every * time.Duration(u) / users)
			problems[u] = f.deployAs(ctx, u, each, every, sent[u])
		})
	}
	work.Wait()
	f.created += each
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	var took []float64
	err := wait(ctx, "Deployments are missing in the clusters", func() (bool, error) {
		took = nil
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, mine := range sent {
			for name, at := range mine {
				if len(f.seen[name]) < f.spread {
					return false, nil
				}
				last := slices.MaxFunc(slices.Collect(maps.Values(f.seen[name])), time.Time.Compare)
				took = append(took, last.Sub(at).Seconds())
			}
		}
		return true, nil
	})
	return took, err
}

// deployAs lets a user create Deployments.
func (f *field) deployAs(ctx context.Context, user, n int, every time.Duration, sent map[string]time.Time) error {
	workspace, err := f.in(fmt.Sprintf("root:team-%d", user))
	if err != nil {
		return err
	}
	client := workspace.Resource(deploymentGVR).Namespace("default")
	// The workspace is new: kcp needs a moment until it serves the API.
	if err := wait(ctx, "the workspace does not serve Deployments", func() (bool, error) {
		_, err := client.List(ctx, metav1.ListOptions{})
		return err == nil, err
	}); err != nil {
		return err
	}
	for i := range n {
		name := fmt.Sprintf("web-%d-%d", user, f.created+i)
		began := time.Now()
		if _, err := client.Create(ctx, f.deployment(name), metav1.CreateOptions{}); err != nil {
			return err
		}
		sent[name] = began
		time.Sleep(time.Until(began.Add(every)))
	}
	return nil
}

func (f *field) deployment(name string) *unstructured.Unstructured {
	labels := map[string]any{"app": name}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "labels": labels},
		"spec": map[string]any{
			"replicas": f.replicas, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{
				"name": "web", "image": f.image, "ports": []any{map[string]any{"containerPort": int64(8080)}},
			}}}},
		},
	}}
}

// percentile returns the sample below which a percentage of all is.
func percentile(samples []float64, percent float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return s[max(0, int(math.Ceil(percent/100*float64(len(s))))-1)]
}
