// Command planted proves that the model of installations finds mistakes: it plants each defect of its table into the code,
// one at a time, and runs the model until it fails. The tree is not changed: the compiler gets the changed file as an
// overlay. The defects of workloads are at the seams of their model: see test/workloads.
//
//	go run ./test/planted [flags]
package main

import (
	"cmp"
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

// dir is the directory of the model.
const dir = "test/model"

// defect is a mistake in the code that a model must find.
type defect struct {
	name string
	// file is the path in the repository. The old text, which it has once, is replaced.
	file, old, new string
	// steps are those that the model takes, separated by commas, and model is its test. Default: TestModel.
	steps, model string
	// says is a part of what the model must say.
	says string
}

func main() {
	steps := flag.Int("steps", 3000, "the most steps in which the model must find a defect")
	run := flag.String("run", "", "part of the names of the defects to plant. Default: all")
	baseline := flag.Bool("baseline", false, "also run the model without the defect, in as many steps: it must find nothing")
	flag.Parse()
	if err := plantAll(*steps, *run, *baseline); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// plantAll plants the defects whose names contain a text.
func plantAll(steps int, run string, baseline bool) error {
	temp, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	missed := 0
	for _, d := range defects {
		if !strings.Contains(d.name, run) {
			continue
		}
		certain, err := d.try(temp, steps, baseline)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if !certain {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d defects are not found for certain", missed)
	}
	return nil
}

// try reports whether the model finds a defect, and with baseline whether it finds nothing without.
func (d defect) try(temp string, steps int, baseline bool) (certain bool, _ error) {
	began := time.Now()
	found, err := d.plant(temp, steps, true)
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
	without, err := d.plant(temp, steps, false)
	if err != nil || without == "" {
		return err == nil, err
	}
	fmt.Printf("UNSURE %s: the model fails without the defect, too: %s\n", d.name, without)
	return false, nil
}

// plant builds the model with the defect, or without it, and runs it. It returns what the model finds, or nothing.
func (d defect) plant(temp string, steps int, planted bool) (found string, _ error) {
	binary := filepath.Join(temp, "model.test")
	args := []string{"test", "-c", "-o", binary}
	if planted {
		overlay, err := d.overlay(temp)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	ctx := context.Background()
	if out, err := exec.CommandContext(ctx, "go", append(args, "./"+dir)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, binary, append(d.args(), "-model.steps", strconv.Itoa(steps))...)
	cmd.Dir = dir
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
	return []string{"-test.run", "^" + cmp.Or(d.model, "TestModel") + "$", "-test.timeout", "2h", "-rapid.checks", "10000",
		"-rapid.nofailfile", "-rapid.shrinktime", "1ms", "-model.steps-only", d.steps}
}

// overlay writes the changed file, and the overlay of the compiler that names it.
func (d defect) overlay(temp string) (string, error) {
	changed, err := d.change()
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(d.file)
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(temp, "changed.go"), filepath.Join(temp, "overlay.json")
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
