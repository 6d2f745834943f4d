package framework

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMap is a ConfigMap of a cluster.
const ConfigMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default, labels: {workloads.kcp.dev/cluster: %s}}, data: {a: %s}}"

// NoReports waits until the ConfigMaps with what a cluster serves are gone.
func (w *Workloads) NoReports(cluster string) {
	w.Helper()
	w.Eventually(func() error {
		list, err := w.In("root:compute").Resource(ConfigMapGVR).Namespace("default").List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "cluster-"+cluster+".") {
				return fmt.Errorf("ConfigMap %s is there", o.GetName())
			}
		}
		return nil
	})
}
