// Package setup reads, validates and edits setup files. Decoding is strict and keeps positions, so one run reports
// every problem of a file.
package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// StdinName is the name of standard input in messages.
const StdinName = "<stdin>"

// File is a parsed setup file.
type File struct {
	// Name is its name in messages: its path, or <stdin>.
	Name string
	// Data is its text.
	Data []byte
	// Setup is its validated content with all defaults.
	Setup *v1alpha1.Setup

	// files reads the files that it refers to. It is nil if they cannot be read.
	files Files
	// warnings are the problems of published resources that are probably mistakes.
	warnings []string
}

// Load reads the setup file at path, or stdin if path is Stdin, and the files that it refers to: relative to the file,
// or to the current directory. It fails like Parse, or with a *clierr.Error with code BadInput if the file cannot be
// read.
func Load(path string, stdin io.Reader) (*File, error) {
	if path == Stdin {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read setup from stdin: %w", err)
		}
		return ParseWith(StdinName, data, directory("."))
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		hint := "create one with kcpctl init, or name another one with -f"
		if near := nearFile(path); near != "" {
			hint = "did you mean -f " + near + "?"
		}
		return nil, clierr.New(clierr.BadInput, hint, "setup file %s does not exist", path)
	}
	if err != nil {
		return nil, clierr.New(clierr.BadInput, "name a setup file with -f", "read setup: %w", err)
	}
	return ParseWith(path, data, directory(filepath.Dir(path)))
}

// nearFile returns the file beside a missing one that a user probably means: one with the other extension of YAML, or
// with a similar name. It returns "" if there is none.
func nearFile(path string) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	files := map[string]string{} // by their names without the extension
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files[strings.TrimSuffix(e.Name(), ext)] = e.Name()
		}
	}
	name := filepath.Base(path)
	near := files[Nearest(slices.Sorted(maps.Keys(files)), strings.TrimSuffix(name, filepath.Ext(name)))]
	if near == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(path), near)
}

// Parse reads a setup from the text of a file called name, which refers to no other file. If the file is invalid, the
// error is a *clierr.Error with code BadInput that wraps Errors, all problems of the file.
func Parse(name string, data []byte) (*File, error) { return ParseWith(name, data, nil) }

// ParseWith reads a setup like Parse, with the files that it refers to. Setup has their content instead of their names.
func ParseWith(name string, data []byte, files Files) (*File, error) {
	root, problem := parseYAML(data)
	if problem != nil {
		return nil, Errors{*problem}.in(name)
	}
	d := newDecoder()
	s, err := d.setup(root)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", name, err)
	}
	p := &publisher{decoder: d, setup: s, files: files}
	if !d.aborted {
		SetDefaults(s)
		p.problems = d.located(Validate(s))
		p.notes = append(p.notes, d.unreadMetrics(s)...)
		p.policies()
		if err := p.published(); err != nil {
			return nil, err
		}
	}
	if problems := append(d.problems, p.problems...); len(problems) > 0 {
		return nil, &clierr.Error{Err: problems.in(name), Code: clierr.BadInput, Hint: p.hint}
	}
	f := &File{Name: name, Data: data, Setup: s, files: files}
	for _, note := range p.notes.sorted(name) {
		f.warnings = append(f.warnings, note.String())
	}
	return f, nil
}

// unreadMetrics is the note about NetworkPolicies that refuse the Prometheus of the setup: it would report all servers
// but the front-proxies as down.
func (d *decoder) unreadMetrics(s *v1alpha1.Setup) Errors {
	policies := s.Spec.NetworkPolicies
	if s.Spec.Monitoring == nil || policies == nil || len(policies.MetricsClients) > 0 {
		return nil
	}
	pos, _ := d.positions.of("spec.networkPolicies")
	return Errors{{Line: pos.line, Column: pos.column, Path: "spec.networkPolicies.metricsClients",
		Message: "without it, the NetworkPolicies let no Prometheus read metrics (spec.monitoring), and alerts " +
			"report that components are down: set it to labels of the namespace of Prometheus, or add your own " +
			"NetworkPolicy"}}
}

// Notes returns warnings about a valid file: what published resources probably do not mean, NetworkPolicies that refuse
// Prometheus, and one for each release of kcp and of the api-syncagent that is newer than the newest supported one.
func (f *File) Notes() []string {
	spec := &f.Setup.Spec
	versions := []string{spec.Version, spec.Image.Tag}
	for _, p := range parts(f.Setup) {
		if p.custom == nil {
			versions = append(versions, p.Image.Tag)
		}
	}
	out := append(slices.Clone(f.warnings), exposures(f.Setup)...)
	out = append(out, doubtfulFlags(f.Setup)...)
	for _, v := range versions {
		if note := release.NewerNote(v); note != "" && !slices.Contains(out, note) {
			out = append(out, note)
		}
	}
	for _, a := range spec.Agents {
		if note := release.NewerAgentNote(a.Version); note != "" && !slices.Contains(out, note) {
			out = append(out, note)
		}
	}
	return out
}

// setup decodes the root node of a document and collects all problems. It omits fields that it cannot decode.
func (d *decoder) setup(root *yaml.Node) (*v1alpha1.Setup, error) {
	s := &v1alpha1.Setup{}
	d.note(nil, root, root)
	if d.checkKind(root); d.aborted {
		return s, nil
	}
	tree, ok := d.value(root, setupType(), nil)
	if !ok {
		return s, nil
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	return s, kjson.UnmarshalCaseSensitivePreserveInts(data, s)
}

// importHint is what to do with an object of another API from which import makes a setup file.
func importHint(apiVersion string) string {
	for _, group := range []string{"operator.kcp.io/", "helm.toolkit.fluxcd.io/", "argoproj.io/"} {
		if strings.HasPrefix(apiVersion, group) {
			return "kcpctl import -f FILE makes a setup file of it"
		}
	}
	return ""
}

// checkKind checks that the document is a setup. If it is not, no further problem is reported.
func (d *decoder) checkKind(root *yaml.Node) {
	for _, want := range []struct{ key, value string }{{"apiVersion", v1alpha1.APIVersion}, {"kind", v1alpha1.KindSetup}} {
		if n := lookup(root, want.key); n != nil && n.Value != want.value {
			d.aborted = true
			d.report(field.NewPath(want.key), n, mustBe(want.value, n), importHint(n.Value))
		}
	}
}

// Files reads the files that a setup file refers to.
type Files interface {
	// Match returns the names of the files that match a pattern, sorted. A pattern is relative to the setup file.
	Match(pattern string) ([]string, error)
	// Read returns the content of a file that Match returned.
	Read(name string) ([]byte, error)
}

// directory has the files relative to a directory.
type directory string

// Match implements Files.
func (d directory) Match(pattern string) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(string(d), pattern)
	}
	return filepath.Glob(pattern)
}

// Read implements Files.
func (d directory) Read(name string) ([]byte, error) { return os.ReadFile(name) }
