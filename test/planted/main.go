// Command planted proves that the random models find mistakes: it plants each defect of their tables into the code, one
// at a time, and runs the model until it fails. The tree is not changed: the compiler gets the changed file as an
// overlay.
//
//	go run ./test/planted [flags] [workloads|installation]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// model is a random model with the defects that it must find.
type model struct {
	name, dir string
	defects   []defect
}

var models = []model{
	{"workloads", "test/workloads", ofWorkloads},
	{"installation", "test/model", ofInstallation},
}

// defect is a mistake in the code that a model must find.
type defect struct {
	name string
	// file is the path in the repository. The old text, which it has once, is replaced.
	file, old, new string
	// rules are those that may find it, and steps are those that the model takes, separated by commas. Default: all.
	rules, steps string
	// says is a part of what the model must say. Default: anything.
	says string
}

func main() {
	steps := flag.Int("steps", 3000, "the most steps in which the model must find a defect")
	run := flag.String("run", "", "part of the names of the defects to plant. Default: all")
	baseline := flag.Bool("baseline", false, "also run the model without the defect, in as many steps: it must find nothing")
	flag.Parse()
	if err := plantAll(flag.Arg(0), *steps, *run, *baseline); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// plantAll plants the defects of one model, or of all.
func plantAll(only string, steps int, run string, baseline bool) error {
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	missed := 0
	for _, m := range models {
		if only != "" && only != m.name {
			continue
		}
		for _, d := range m.defects {
			if !strings.Contains(d.name, run) {
				continue
			}
			certain, err := m.try(d, dir, steps, baseline)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			if !certain {
				missed++
			}
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d defects are not found for certain", missed)
	}
	return nil
}

// try reports whether the model finds a defect, and with baseline whether it finds nothing without.
func (m model) try(d defect, dir string, steps int, baseline bool) (certain bool, _ error) {
	began := time.Now()
	found, err := m.plant(d, dir, steps, true)
	if err != nil {
		return false, err
	}
	after := time.Since(began).Round(time.Second)
	switch {
	case found == "":
		fmt.Printf("MISSED %s: %d steps in %s\n", d.name, steps, after)
		return false, nil
	case !strings.Contains(found, d.says):
		fmt.Printf("MISSED %s in %s: the model says something else: %s\n", d.name, after, found)
		return false, nil
	}
	fmt.Printf("found  %s in %s: %s\n", d.name, after, found)
	if !baseline {
		return true, nil
	}
	without, err := m.plant(d, dir, steps, false)
	if err != nil || without == "" {
		return err == nil, err
	}
	fmt.Printf("UNSURE %s: the model fails without the defect, too: %s\n", d.name, without)
	return false, nil
}

// plant builds the model with the defect, or without it, and runs it. It returns what the model finds, or nothing.
func (m model) plant(d defect, dir string, steps int, planted bool) (found string, _ error) {
	binary := filepath.Join(dir, "model.test")
	args := []string{"test", "-c", "-o", binary}
	if planted {
		overlay, err := d.overlay(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	ctx := context.Background()
	if out, err := exec.CommandContext(ctx, "go", append(args, "./"+m.dir)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, binary, append(d.args(), "-model.steps", strconv.Itoa(steps))...)
	cmd.Dir = m.dir
	out, err := cmd.CombinedOutput()
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "the first failure is") {
			return line, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("run the model: %w\n%s", err, out)
	}
	return "", nil
}

func (d defect) args() []string {
	args := []string{"-test.run", "TestModel", "-test.timeout", "2h", "-rapid.checks", "10000",
		"-rapid.nofailfile", "-rapid.shrinktime", "1ms"}
	if d.rules != "" {
		args = append(args, "-model.only", d.rules)
	}
	if d.steps != "" {
		args = append(args, "-model.steps-only", d.steps)
	}
	return args
}

// overlay writes the changed file, and the overlay of the compiler that names it.
func (d defect) overlay(dir string) (string, error) {
	changed, err := d.change()
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(d.file)
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

// change returns the file with the defect.
func (d defect) change() (string, error) {
	raw, err := os.ReadFile(d.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(raw), d.old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, not once: plant the defect into the code as it is now: %s", d.file, n, d.old)
	}
	return strings.Replace(string(raw), d.old, d.new, 1), nil
}
