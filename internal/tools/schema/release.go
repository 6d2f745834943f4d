package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd"
)

// release writes the man pages and the completions of a release to a directory. They are the same bytes each time.
func release(dir string, e edition) error {
	files, err := releaseFiles(cmd.Commands(), e)
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// releaseFiles returns the man pages and the completions by path. Packages of Linux distributions expect compressed man
// pages.
func releaseFiles(root *cobra.Command, e edition) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range append([]*cobra.Command{root}, allCommands(root)...) {
		data, err := compress(manPage(c, e))
		if err != nil {
			return nil, err
		}
		files["man/"+manName(c)+".1.gz"] = data
	}
	for name, write := range map[string]func(io.Writer) error{
		"kcpctl.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"kcpctl.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"kcpctl.ps1":  root.GenPowerShellCompletionWithDesc,
		"_kcpctl":     root.GenZshCompletion,
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return nil, err
		}
		files["completions/"+name] = b.Bytes()
	}
	return files, nil
}

// compress returns data in the format of gzip, without a name and a time.
func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
