package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
	"github.com/kcpctl/kcpctl/internal/workload/apis/served"
)

// refusedInterval is the time until a schema that kcp refuses is sent again: a policy or a quota can have changed.
const refusedInterval = time.Minute

// acceptedFor and mostAccepted limit the names of APIResourceSchemas that are known to be accepted by kcp. A name has a
// hash of the content, so that the schemas of clusters that serve the same are checked once.
const (
	acceptedFor  = time.Hour
	mostAccepted = 1000
)

// create creates an APIResourceSchema. If kcp refuses the schema, it returns the reason. That the controller lacks the
// rights is an error: it says nothing about the schema.
func (w *workspace) create(ctx context.Context, s *unstructured.Unstructured, dryRun ...string) (why string, _ error) {
	_, err := w.client.Resource(schemas).Create(ctx, s,
		metav1.CreateOptions{FieldManager: api.ManagerController, DryRun: dryRun})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		w.accepted.Add(s.GetName(), nil, acceptedFor)
		return "", nil
	case refused.LacksRights(err):
	case refused.By(err) != "":
		return refused.By(err), nil
	}
	return "", fmt.Errorf("create APIResourceSchema %s in workspace %s: %w", s.GetName(), w.path, err)
}

// refused returns why kcp refuses the schema of an API as a cluster serves it. It is empty if it does not.
func (w *workspace) refused(ctx context.Context, a served.API) (string, error) {
	for i := range a.Versions {
		s, err := negotiate.Schema(&a.Versions[i])
		if err != nil {
			return "", err
		}
		if _, accepted := w.accepted.Get(s.GetName()); accepted {
			continue
		}
		if why, err := w.create(ctx, s, metav1.DryRunAll); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// uncheckedError means that kcp could not be asked about the schemas of a cluster.
type uncheckedError struct{ error }

func (e uncheckedError) Unwrap() error { return e.error }

// usable replaces each API of a cluster whose schema cannot be used by a problem: it must not prevent the publication
// of others. It reports whether kcp refuses one of them.
func (w *workspace) usable(ctx context.Context, c *negotiate.Cluster, apis []schema.GroupResource) (bool, error) {
	refuses := false
	for _, gr := range apis {
		a := served.Of(gr, *c)
		if a.Problem != "" {
			continue
		}
		problem := ""
		if err := served.Fits(a); err != nil {
			problem = err.Error()
		} else {
			why, err := w.refused(ctx, a)
			switch {
			case err != nil:
				return false, uncheckedError{fmt.Errorf("check the schema of %s of cluster %s: %w", gr, c.Name, err)}
			case why != "":
				problem = refusedSchema + why
				refuses = true
			}
		}
		if problem != "" {
			c.APIs = slices.DeleteFunc(c.APIs, func(a negotiate.API) bool { return a.GroupResource() == gr })
			c.Problems[gr] = problem
		}
	}
	return refuses, nil
}

// refusedSchema begins the problem of an API whose schema in the cluster kcp refuses.
const refusedSchema = "kcp refuses its schema: "

// unreadable returns the condition APIsCompatible of a cluster whose APIs are not known, are old, or could not be
// published. It is nil otherwise.
func (c *controller) unreadable(d *draft) *metav1.Condition {
	reason, message := api.ReasonSchemasUnreadable, c.members.unchecked(d.Name)
	if message == "" {
		message = c.reports.unreadable(d.Cluster, d.verdict.Report)
	}
	if message == "" {
		reason = api.ReasonPublicationRefused
		message = c.publisher.denied
	}
	if message == "" {
		return nil
	}
	return &metav1.Condition{Type: api.ConditionAPIsCompatible, Status: metav1.ConditionUnknown, Reason: reason,
		Message: message}
}

// unchecked returns why kcp could not be asked about the schemas of a cluster that the controller reads itself, or "".
func (m *members) unchecked(cluster string) string {
	last := m.of[cluster]
	if last == nil {
		return ""
	}
	_, problem := last.state()
	if unchecked, ok := errors.AsType[uncheckedError](problem); ok {
		return unchecked.Error()
	}
	return ""
}

// deny records why kcp refuses what is published, for the status of the clusters. Other errors pass.
func (p *publisher) deny(err error) {
	p.denied = ""
	switch why := refused.By(err); {
	case refused.LacksRights(err):
		p.denied = "the controller lacks the rights to publish the APIs: run kcpctl up, which gives them. " +
			err.Error()
	case why != "":
		p.denied = "kcp refuses what the controller publishes: " + err.Error()
	}
}
