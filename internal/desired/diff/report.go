package diff

import (
	"fmt"

	"github.com/aymanbagabas/go-udiff"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Entry is what an apply would change in one object.
type Entry struct {
	Object    string      `json:"object"`
	Cluster   string      `json:"cluster,omitempty"`
	Workspace string      `json:"workspace,omitempty"`
	Component string      `json:"component,omitempty"`
	Action    plan.Action `json:"action"`
	// Adopted reports that the object exists and does not belong to this setup yet.
	Adopted bool     `json:"adopted,omitempty"`
	Changes []Change `json:"changes,omitempty"`
	// Drift are the fields that other managers changed since the last apply.
	Drift []plan.Conflict `json:"drift,omitempty"`

	before, after map[string]any
}

// Entries returns what a plan changes, by object. Values of Secrets are masked. drift are the conflicts of the same
// plan before it was forced.
func Entries(p *plan.Plan, setup string, drift []plan.Conflict) []Entry {
	var out []Entry
	for _, it := range p.Items {
		if it.Action == plan.Unchanged || it.Action == plan.Unknown || it.Action == plan.Keep {
			continue
		}
		e := Entry{Object: it.String(), Cluster: it.Cluster, Workspace: it.Workspace,
			Component: string(it.Component), Action: it.Action}
		if it.Live != nil {
			e.before = it.Live.Object
			e.Adopted = it.Action == plan.Change && it.Live.GetLabels()[topology.LabelSetup] != setup
		}
		if it.Action == plan.Change && it.Merged != nil {
			e.after = it.Merged.Object
			e.Changes = Objects(e.before, e.after)
		}
		if it.Action == plan.Create && it.Want != nil {
			e.after = it.Want.Object
		}
		if it.Kind == "Secret" {
			e.Changes = Mask(e.Changes)
			e.before, e.after = maskObject(e.before), maskObject(e.after)
		}
		for _, c := range drift {
			if c.Ref == it.Ref {
				e.Drift = append(e.Drift, c)
			}
		}
		out = append(out, e)
	}
	return out
}

func maskObject(o map[string]any) map[string]any {
	if o == nil {
		return nil
	}
	o = strip(o)
	for _, key := range []string{"data", "stringData"} {
		if v, ok := o[key]; ok {
			o[key] = describe(v)
		}
	}
	return o
}

// Unified returns the entry as a unified diff of YAML.
func (e Entry) Unified() (string, error) {
	before, err := text(e.before)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", e.Object, err)
	}
	after, err := text(e.after)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", e.Object, err)
	}
	return udiff.Unified("live/"+e.Object, "setup/"+e.Object, before, after), nil
}

func text(o map[string]any) (string, error) {
	if o == nil {
		return "", nil
	}
	out, err := yaml.Marshal(strip(o))
	return string(out), err
}
