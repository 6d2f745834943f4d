package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func (n node) restConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig("admin"))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of node %s: %w", n.name, err)
	}
	config.QPS, config.Burst = 50, 100
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // the node is on this machine
	return config, nil
}

func (n node) client() (*kubernetes.Clientset, error) {
	config, err := n.restConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// applyAddons applies the manifests of the addons.
func (n node) applyAddons(ctx context.Context) error {
	config, err := n.restConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	manifests, err := n.addons()
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode the addons: %w", err)
		}
		// The guess is right for the few kinds of the addons.
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		var target dynamic.ResourceInterface = client.Resource(resource)
		if namespace := object.GetNamespace(); namespace != "" {
			target = client.Resource(resource).Namespace(namespace)
		}
		options := metav1.ApplyOptions{FieldManager: "testbed", Force: true}
		if _, err := target.Apply(ctx, object.GetName(), object, options); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// awaitNode waits until pods can be created and run.
func (n node) awaitNode(ctx context.Context) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	return poll(ctx, 3*time.Minute, func(ctx context.Context) error {
		got, err := client.CoreV1().Nodes().Get(ctx, n.hostname, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("node %s is not ready: %s", n.hostname, c.Message)
			}
		}
		for _, taint := range got.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady {
				return fmt.Errorf("node %s has the taint %s", n.hostname, taint.Key)
			}
		}
		_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// awaitDNS waits until CoreDNS answers.
func (n node) awaitDNS(ctx context.Context) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	return poll(ctx, 3*time.Minute, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas < 1 {
			return errors.New("coredns is not available")
		}
		return nil
	})
}

// ignoreNotFound treats an object that does not exist as deleted.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
