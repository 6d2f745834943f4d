package agentstate

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// What an agent logs about the URLs of its APIExportEndpointSlice (multicluster-provider: pkg/provider/provider.go).
const (
	failedToWatch = "failed to watch endpoint"
	foundObject   = "new endpoint object"
)

// WatchLog finds in the log of an agent, which is written to it, the URLs that the agent does not watch. An agent tries
// to watch a URL when it starts, and when the APIExportEndpointSlice changes, and not again if that fails.
type WatchLog struct {
	// rest is the start of a line.
	rest []byte
	// failed are the last failures, by the replica and the URL.
	failed map[replicaURL]string
}

// replicaURL is a URL, and the start of the lines of a replica if there are several.
type replicaURL struct{ replica, url string }

// Write reads lines of a log. It never fails.
func (l *WatchLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.read(line)
		l.rest = rest
	}
}

// read reads a line. Most lines are about other things.
func (l *WatchLog) read(line []byte) {
	if !bytes.Contains(line, []byte(failedToWatch)) && !bytes.Contains(line, []byte(foundObject)) {
		return
	}
	at := max(0, bytes.IndexByte(line, '{'))
	var entry struct{ Msg, URL, Error string }
	if json.Unmarshal(line[at:], &entry) != nil {
		return
	}
	key := replicaURL{string(line[:at]), entry.URL}
	switch entry.Msg {
	case foundObject:
		delete(l.failed, key)
	case failedToWatch:
		if l.failed == nil {
			l.failed = map[replicaURL]string{}
		}
		l.failed[key] = entry.Error
	}
}

// Failed reports whether the agent does not watch any URL.
func (l *WatchLog) Failed() bool { return len(l.failed) > 0 }

// Unwatched returns the endpoints that a replica of the agent has failed to watch, with the errors.
func (l *WatchLog) Unwatched(all []Endpoint) []Unwatched {
	var out []Unwatched
	for _, e := range all {
		for key, err := range l.failed {
			if key.url == e.URL.String() &&
				!slices.ContainsFunc(out, func(u Unwatched) bool { return u.Endpoint == e }) {
				out = append(out, Unwatched{e, err})
			}
		}
	}
	return out
}

// Unwatching returns what is wrong with an agent that does not watch some endpoints.
func Unwatching(all []Unwatched) string {
	var parts []string
	for _, u := range all {
		where := u.URL.String()
		if u.Shard != nil {
			where = string(u.Shard.ID())
		}
		parts = append(parts, where+" ("+u.Err+")")
	}
	return "does not watch " + gather.Few(parts, gather.Listed, ", ")
}

// Unwatched is an endpoint that an agent does not watch, and the error with which it has failed.
type Unwatched struct {
	Endpoint
	Err string
}
