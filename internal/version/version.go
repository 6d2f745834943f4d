// Package version says which build of kcpctl this is.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the linker: -ldflags "-X github.com/kcpctl/kcpctl/internal/version.version=v0.1.0". What it leaves empty comes
// from the build information that Go puts into every binary, so that `go install` and `go build` are known too.
var version, commit, date string

// Info describes a build.
type Info struct {
	// Version is the release, or "devel".
	Version string `json:"version"`
	// Commit is the git commit; "-dirty" follows it if files were changed.
	Commit string `json:"commit,omitempty"`
	// Date is the commit's, in RFC 3339.
	Date     string `json:"date,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// KCP is the kcp release that a setup gets if it names none, and KnownKCP are all that this build has flags for. Etcd is
	// the default of managed etcds. They are the caller's to fill in.
	KCP      string   `json:"kcp,omitempty"`
	KnownKCP []string `json:"knownKCP,omitempty"`
	Etcd     string   `json:"etcd,omitempty"`
}

// Get returns what is known of the running binary.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return info(build)
}

// info merges what the linker set with the build information, which is nil in a binary that was built without modules.
func info(build *debug.BuildInfo) Info {
	i := Info{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build != nil {
		vcs := map[string]string{}
		for _, s := range build.Settings {
			vcs[s.Key] = s.Value
		}
		revision := vcs["vcs.revision"]
		if revision != "" && vcs["vcs.modified"] == "true" {
			revision += "-dirty"
		}
		i.Version = cmp.Or(i.Version, strings.Trim(build.Main.Version, "()"))
		i.Commit = cmp.Or(i.Commit, revision)
		i.Date = cmp.Or(i.Date, vcs["vcs.time"])
	}
	i.Version = cmp.Or(i.Version, "devel")
	return i
}

// Text is one fact per line, without those that are not known.
func (i Info) Text() string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"kcpctl", i.Version},
		{"commit", i.Commit},
		{"date", i.Date},
		{"go", i.Go},
		{"platform", i.Platform},
		{"kcp", i.kcp()},
		{"etcd", i.Etcd},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", f.name, f.value)
		}
	}
	return b.String()
}

// kcp is the default release, followed by all known ones.
func (i Info) kcp() string {
	if len(i.KnownKCP) == 0 {
		return i.KCP
	}
	return strings.TrimSpace(fmt.Sprintf("%s (knows %s)", i.KCP, strings.Join(i.KnownKCP, ", ")))
}
