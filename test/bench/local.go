package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// aim is the wanted ratio to the time of the peer.
const aim = 0.6

// measureLocal runs three shards on this machine, in turns with kcp's own test server.
func measureLocal(ctx context.Context, b *bench, runs int) error {
	bin, err := testbed(ctx, "kcp-bin-dir")
	if err != nil {
		return err
	}
	var ours localRuns
	var theirs struct{ wall, rss []float64 }
	for range runs {
		if err := b.bringUpHere(ctx, bin, sharded, &ours); err != nil {
			return err
		}
		p, err := b.startPeer(ctx, bin)
		if err != nil {
			return err
		}
		b.logf("local, sharded-test-server: %.1f s", p.wall.Seconds())
		theirs.wall = append(theirs.wall, p.wall.Seconds())
		theirs.rss = append(theirs.rss, megabytes(p.rss))
	}
	r := &b.report
	m := median(theirs.wall)
	r.add("local", "s", ours.up.of(wall), reference("sharded-test-server", m), reference("aim", aim*m))
	r.add("local, memory of all processes", "MB", ours.rss, reference("sharded-test-server", median(theirs.rss)))
	r.add("local, sharded-test-server", "s", theirs.wall)
	r.add("local, kcpctl's own part", "s", ours.up.of(own), limit(2))
	r.add("local, kcpctl's CPU time", "s", ours.up.of(cpu))
	r.add("local, up that changes nothing", "s", ours.noOp.of(wall), limit(2))
	r.addPath("local", ours.up)
	return nil
}

// localRuns has the runs of a setup on this machine.
type localRuns struct {
	up, noOp bringUps
	rss      []float64 // of all processes when kcp serves, in megabytes
}

// bringUpHere runs up twice on this machine and removes everything.
func (b *bench) bringUpHere(ctx context.Context, bin, file string, to *localRuns) (err error) {
	dir, err := os.MkdirTemp("", "kcpctl-bench-")
	if err != nil {
		return err
	}
	env := []string{"XDG_STATE_HOME=" + dir, "KCPCTL_KCP_BIN_DIR=" + bin}
	args := []string{"--local", "-f", file}
	defer func() {
		err = errors.Join(err, b.down(ctx, env, args...), killAll(dir), os.RemoveAll(dir))
	}()
	first, err := b.up(ctx, env, args...)
	if err != nil {
		return err
	}
	rss, err := residentMemory(dir)
	if err != nil {
		return err
	}
	second, err := b.up(ctx, env, args...)
	if err != nil {
		return err
	}
	b.logf("local, %s: %.1f s, again %.1f s", filepath.Base(file), first.wall.Seconds(), second.wall.Seconds())
	to.up, to.noOp, to.rss = append(to.up, first), append(to.noOp, second), append(to.rss, megabytes(rss))
	return nil
}
