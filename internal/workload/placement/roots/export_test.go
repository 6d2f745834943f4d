package roots

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Logged returns how many of the first failures of an item are logged, with an error that stays.
func Logged(r schema.GroupVersionResource, err error, failures int) (n int) {
	for retries := range failures {
		if reported(item{r, watch.Key{}}, err, retries) {
			n++
		}
	}
	return n
}
