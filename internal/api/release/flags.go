package release

import (
	"embed"
	"slices"
	"strings"
)

//go:embed flags/*.txt
var flagLists embed.FS

// Flags returns the names of all flags of a program of kcp, such as kcp-front-proxy, in a release. It returns nil if
// kcpctl does not know them: it knows the flags of a few releases.
func Flags(program, release string) []string {
	text, err := flagLists.ReadFile("flags/" + release + ".txt")
	if err != nil {
		return nil
	}
	_, list, ok := strings.Cut(string(text), "\n"+program+":\n")
	if !ok {
		return nil
	}
	var out []string
	for name := range strings.Lines(list) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, ":") {
			break
		}
		out = append(out, name)
	}
	return out
}

// UnknownFlag reports whether a program has no flag of a name, and returns the flags that it has. For a release whose
// flags are not known it compares with the flags of Newest, and certain is false.
func UnknownFlag(program, release, name string) (unknown, certain bool, known []string) {
	known = Flags(program, release)
	certain = known != nil
	if !certain {
		known = Flags(program, Newest)
	}
	name = strings.ReplaceAll(name, "_", "-") // as kcp reads names
	return len(known) > 0 && !slices.Contains(known, name), certain, known
}
