package check

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/pki"
)

func expiry(_ context.Context, s *Subject) (o outcome) {
	if len(s.state.CAs) == 0 {
		return skipped("there is no PKI yet")
	}
	list, err := pki.ListOf(s.Topology, s.state)
	if err != nil {
		o.add(err)
		return o
	}
	for _, it := range list.Items {
		if it.Info == nil || it.Role == pki.RolePrevious {
			continue
		}
		left, day := it.NotAfter.Sub(s.Now()), it.NotAfter.UTC().Format(time.DateOnly)
		switch {
		case left <= 0:
			o.fail("%s expired on %s", it.Name, day)
		case it.IsDue(s.Now()): // a month before the end, less for what lives less than three
			o.warn("%s expires on %s, in %d days", it.Name, day, left/(24*time.Hour))
		}
	}
	return o
}

// fits proves every connection from the store alone.
func fits(_ context.Context, s *Subject) (o outcome) {
	if len(s.state.CAs) == 0 {
		return skipped("there is no PKI yet")
	}
	o.add(pki.Prove(s.Topology, s.state, s.Now()))
	return o
}
