// Command planted proves that the model of transparent multi-cluster finds mistakes: it plants each defect of a table into the code, one at a
// time, and runs the model until it fails. The tree is not changed: the compiler gets the changed file as an overlay.
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

// calmSteps are the steps of a model in which nothing goes wrong.
var calmSteps = []string{
	"create a Deployment", "scale", "roll out", "delete a workload", "create a Service", "add a cluster", "add a node", "restart the controller", "time passes",
	"everything heals",
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

func plantAll(steps int, run string, baseline bool) error {
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	missed := 0
	for _, d := range defects {
		if !strings.Contains(d.name, run) {
			continue
		}
		began := time.Now()
		found, err := d.plant(dir, steps, true)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		after := time.Since(began).Round(time.Second)
		if found == "" {
			missed++
			fmt.Printf("MISSED %s: %d steps in %s\n", d.name, steps, after)
			continue
		}
		fmt.Printf("found  %s in %s: %s\n", d.name, after, found)
		if !baseline {
			continue
		}
		without, err := d.plant(dir, steps, false)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if without != "" {
			missed++
			fmt.Printf("UNSURE %s: the model fails without the defect, too: %s\n", d.name, without)
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d defects are not found for certain", missed)
	}
	return nil
}

// plant builds the model with the defect, or without it, and runs it. It returns what the model finds, or nothing.
func (d defect) plant(dir string, steps int, planted bool) (found string, _ error) {
	binary := filepath.Join(dir, "model.test")
	args := []string{"test", "-tags", "model", "-c", "-o", binary}
	if planted {
		overlay, err := d.overlay(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	ctx := context.Background()
	if out, err := exec.CommandContext(ctx, "go", append(args, "./test/workloads")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	model := exec.CommandContext(ctx, binary, append(d.args(), "-model.steps", strconv.Itoa(steps))...)
	model.Dir = filepath.Join("test", "workloads")
	out, err := model.CombinedOutput()
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
	args := []string{"-test.run", "TestModel", "-test.timeout", "2h", "-rapid.checks", "10000", "-rapid.nofailfile", "-rapid.shrinktime", "1ms", "-model.only", d.rules}
	if d.calm {
		args = append(args, "-model.steps-only", strings.Join(calmSteps, ","))
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
