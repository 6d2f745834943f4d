package kcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// dumpPath is where a shard dumps a logical cluster that is being moved (kcp: pkg/server/migrationdump/server.go).
const dumpPath = "/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"

// errForgotten means that a server does not know that a logical cluster is being moved. kcp keeps this only in the
// memory of the process.
var errForgotten = errors.New("the shard has forgotten the move")

// content has the entries of a logical cluster except Events, by a digest of their keys in etcd.
type content map[string]entry

// entry is the key of an entry, if it is known, and a digest of the value.
type entry struct{ key, value string }

// The lengths of digests.
const (
	keyDigest   = 5
	valueDigest = 4
)

func digestOf(raw []byte, length int) string {
	d := sha256.Sum256(raw)
	return string(d[:length])
}

// dump reads the content that the client's server has of a logical cluster while it is being moved. It needs
// system:kcp:external-logical-cluster-admin.
func (c *Client) dump(ctx context.Context, cluster string) (content, error) {
	out := content{}
	for next := ""; ; {
		var err error
		if next, err = c.dumpPage(ctx, cluster, next, out); err != nil {
			return nil, err
		}
		if next == "" {
			return out, nil
		}
	}
}

// dump is a LogicalClusterDump.
type dump struct {
	Status struct {
		Continue string
		Entries  []struct {
			Key   string
			Value []byte
		}
	}
}

// dumpPage reads a part of a dump. kcp v0.32 sends everything at once.
func (c *Client) dumpPage(ctx context.Context, cluster, from string, out content) (next string, _ error) {
	const format = `{"apiVersion":"migration.kcp.io/v1alpha1","kind":"LogicalClusterDump","spec":{"continue":%q}}`
	body := fmt.Sprintf(format, from)
	resp, err := c.request(ctx, http.MethodPost, "/clusters/"+cluster+dumpPath,
		http.Header{"Content-Type": {"application/json"}}, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusCreated:
	case http.StatusNotFound:
		return "", errForgotten
	default:
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return "", errors.Join(fmt.Errorf("read its content: %s: %s", resp.Status,
			strings.TrimSpace(string(text))), err)
	}
	var answer dump
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("read its content: %w", err)
	}
	for _, e := range answer.Status.Entries {
		if !strings.Contains("/"+e.Key, "/events/") { // they expire
			out[digestOf([]byte(e.Key), keyDigest)] = entry{e.Key, digestOf(e.Value, valueDigest)}
		}
	}
	return answer.Status.Continue, nil
}

// contentAnnotation of a migration has the content of its logical cluster before it is copied.
const contentAnnotation = "kcpctl.dev/content"

// mostNoted is the number of entries of which an annotation has room for the digests.
const mostNoted = 20_000

// note returns the digests, for an annotation. It is empty if there are too many: then only the run that has read them
// knows them.
func (c content) note() string {
	if len(c) > mostNoted {
		return ""
	}
	var raw []byte
	for key, e := range c {
		raw = append(append(raw, key...), e.value...)
	}
	return "v1:" + base64.RawStdEncoding.EncodeToString(raw)
}

// notedContent returns the content that an earlier run has noted at a migration, or nil.
func notedContent(o *unstructured.Unstructured) content {
	text, ok := strings.CutPrefix(o.GetAnnotations()[contentAnnotation], "v1:")
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil
	}
	out := content{}
	for ; len(raw) >= keyDigest+valueDigest; raw = raw[keyDigest+valueDigest:] {
		out[string(raw[:keyDigest])] = entry{"", string(raw[keyDigest : keyDigest+valueDigest])}
	}
	return out
}

// missing returns the entries that another content does not have, or has with another value. A shard that was restarted
// writes its URL into the LogicalCluster.
func (c content) missing(in content) []string {
	var out []string
	for digest, e := range c {
		other, ok := in[digest]
		if !ok || other.value != e.value && !strings.HasPrefix(other.key, "core.kcp.io/logicalclusters/") {
			out = append(out, cmp.Or(e.key, other.key, "an unknown one"))
		}
	}
	slices.Sort(out)
	return out
}
