package main

import (
	"context"
	"os/exec"
	"path/filepath"
)

// measureVersion compares the start times of the two programs, in turns.
func measureVersion(ctx context.Context, b *bench, runs int) error {
	kubectl, err := kubectl(ctx)
	if err != nil {
		return err
	}
	var ours, theirs series
	for i := range runs + 1 {
		for _, p := range []struct {
			to   *series
			what command
		}{
			{&ours, command{name: b.kcpctl, args: []string{"version"}}},
			{&theirs, command{name: kubectl, args: []string{"version", "--client"}}},
		} {
			u, err := p.what.run(ctx)
			if err != nil {
				return err
			}
			if i > 0 { // the first run reads the binaries from disk
				p.to.add(u)
			}
		}
	}
	b.logf("version: %d runs each", runs)
	b.report.add("version", "s", ours.wall, reference("kubectl", median(theirs.wall)))
	b.report.add("version, memory", "MB", ours.rss, reference("kubectl", median(theirs.rss)))
	return nil
}

// kubectl returns the path of the testbed's kubectl, or of the machine's if the testbed fails.
func kubectl(ctx context.Context) (string, error) {
	dir, err := testbed(ctx, "bin-dir", "kubectl")
	if err == nil {
		return filepath.Join(dir, "kubectl"), nil
	}
	if path, lookErr := exec.LookPath("kubectl"); lookErr == nil {
		return path, nil
	}
	return "", err
}
