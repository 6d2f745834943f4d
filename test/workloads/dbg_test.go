package workloads_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func TestDbg(t *testing.T) {
	quiet(t)
	bubble(t, func() {
		w := newWorld()
		w.log = t.Logf
		w.begin(1)
		rapid.Check(t, func(rt *rapid.T) {
			g := &game{world: w, t: rt, tally: &tally{counts: map[string]int{}}}
			if w.site("east").objects[deployments] != nil {
				return
			}
			for _, x := range [][2]string{{"lab", "db"}, {"shop", "web"}, {"lab", "web"}} {
				g.put("1a", deployments, x[0], x[1], "Deployment", map[string]any{"spec": map[string]any{
					"replicas": float64(2), "strategy": map[string]any{"type": "RollingUpdate"}, "selector": map[string]any{"matchLabels": map[string]any{"app": x[1]}},
					"template": template(x[1], g.revision(), "", ""),
				}})
			}
			g.pass(60 * time.Second)
			for _, k := range sortedKeys(w.objects) {
				if _, p, _, _ := split(k); p == deployments || p == bindings {
					b, _ := yaml.Marshal(w.objects[k].Object)
					fmt.Fprintln(os.Stderr, "----", k, "\n", string(b))
				}
			}
			fmt.Fprintln(os.Stderr, len(w.allPods()), w.problems)
		})
		w.end()
	})
}
