package main

import (
	"bytes"
	"context"
)

// bringUp is one run of kcpctl up.
type bringUp struct {
	usage
	timeline *timeline
}

// up runs kcpctl up with these arguments.
func (b *bench) up(ctx context.Context, env []string, args ...string) (*bringUp, error) {
	var events bytes.Buffer
	c := command{name: b.kcpctl, args: append([]string{"up", "-o", "json"}, args...), env: env, stdout: &events}
	u, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	t, err := newTimeline(&events, u)
	if err != nil {
		return nil, err
	}
	return &bringUp{u, t}, nil
}

// bringUps has the runs of one case.
type bringUps []*bringUp

// of returns one value of each run, in seconds or megabytes.
func (r bringUps) of(figure func(*bringUp) float64) []float64 {
	var out []float64
	for _, u := range r {
		out = append(out, figure(u))
	}
	return out
}

func wall(u *bringUp) float64   { return u.wall.Seconds() }
func cpu(u *bringUp) float64    { return u.cpu.Seconds() }
func memory(u *bringUp) float64 { return megabytes(u.rss) }
func own(u *bringUp) float64    { return u.timeline.own().Seconds() }

// addPath adds the critical path of the median run.
func (r *report) addPath(name string, runs bringUps) {
	r.Paths = append(r.Paths, runs[inMiddle(runs.of(wall))].timeline.path(name))
}
