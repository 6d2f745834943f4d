package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/capacity"
)

// measureInterval is the time between two looks at the capacity of a cluster. Decisions in the meantime are reserved
// (see roots).
const measureInterval = 30 * time.Second

// measured is the capacity of a cluster, as it was read last.
type measured struct{ atomic.Pointer[api.Capacity] }

// run reads the capacity until the context ends. If it cannot be read, it is not known: clusters then have the same
// weight.
func (m *measured) run(ctx context.Context, physical *rest.Config, cluster string) error {
	client, err := dynamic.NewForConfig(physical)
	if err != nil {
		return fmt.Errorf("client for cluster %s: %w", cluster, err)
	}
	problem := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		c, err := capacity.Read(ctx, client)
		switch {
		case err == nil:
			problem = ""
		case ctx.Err() == nil && err.Error() != problem:
			problem = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot read the capacity", "cluster", cluster)
		}
		m.Store(c)
	}, measureInterval)
	return nil
}
