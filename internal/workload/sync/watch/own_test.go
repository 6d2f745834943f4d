package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// web returns a Deployment: "a@7" has the UID a and the version 7, and "a@8 ending" is being deleted.
func web(state string) *unstructured.Unstructured {
	uid, rest, _ := strings.Cut(state, "@")
	version, ending, _ := strings.Cut(rest, " ")
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment"}}
	u.SetName("web")
	u.SetAnnotations(map[string]string{clusterAnnotation: "1a"})
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	if ending != "" {
		_ = unstructured.SetNestedField(u.Object, time.Now().Format(time.RFC3339), "metadata", "deletionTimestamp")
	}
	return u
}

// ownSource is a source without a server.
type ownSource struct {
	*source
	changed int
}

func newOwnSource(t *testing.T) *ownSource {
	t.Helper()
	s := &ownSource{}
	set, err := New(t.Context(), Options{
		Config: &rest.Config{}, Now: time.Now, Changed: func(schema.GroupVersionResource, Key) { s.changed++ },
	})
	require.NoError(t, err)
	s.source = newSource(Source{}, set)
	return s
}

// brings is what a watch brings, before it is decoded.
func brings(t *testing.T, u *unstructured.Unstructured) *late {
	t.Helper()
	raw, err := u.MarshalJSON()
	require.NoError(t, err)
	l, err := newLate(raw)
	require.NoError(t, err)
	return l
}

// do does what a step says: "watch a@7", "gone a@8", "list 9 a@7", "wrote a@7", "deleted a". After "read a@7" and
// "ended a@8", what the watch brings waits for "decode".
func (s *ownSource) do(t *testing.T, step string) {
	t.Helper()
	what, state, _ := strings.Cut(step, " ")
	switch what {
	case "read":
		require.NoError(t, s.Add(brings(t, web(state))))
	case "ended":
		require.NoError(t, s.Delete(brings(t, web(state))))
	case "decode":
		if s.next(KeyOf(web(""))) {
			s.changed++
		}
	case "watch":
		s.do(t, "read "+state)
		s.do(t, "decode")
	case "gone":
		s.do(t, "ended "+state)
		s.do(t, "decode")
	case "begin":
		s.began = s.writes // of a list
	case "list":
		version, object, found := strings.Cut(state, " ")
		var items []any
		if found {
			u := web(object)
			items = append(items, &item{KeyOf(u), s.set.hold(u)})
		}
		require.NoError(t, s.Replace(items, version))
	case "wrote":
		s.wrote(web(state))
	case "deleted":
		s.deleted(KeyOf(web(state)), types.UID(state))
	default:
		t.Fatal(step)
	}
}

// state returns what the source shows.
func (s *ownSource) state() string {
	h := s.get(KeyOf(web("")))
	if !h.exists() {
		return ""
	}
	u := s.set.unpack(h)
	out := fmt.Sprint(u.GetUID(), "@", u.GetResourceVersion())
	if u.GetDeletionTimestamp() != nil {
		out += " ending"
	}
	return out
}

func TestASourceShowsWhatWasWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []string
		want  string
	}{
		"at once":                                {[]string{"begin", "list 5", "wrote a@7"}, "a@7"},
		"before it is listed":                    {[]string{"begin", "wrote a@7", "list 5"}, "a@7"},
		"and no earlier version":                 {[]string{"begin", "list 5 a@3", "wrote a@7", "watch a@6"}, "a@7"},
		"until another client has changed it":    {[]string{"begin", "list 5", "wrote a@7", "watch a@7", "watch a@8"}, "a@8"},
		"until it is deleted":                    {[]string{"begin", "list 5", "wrote a@7", "gone a@8"}, ""},
		"not the end of its predecessor":         {[]string{"begin", "list 5 b@3", "wrote a@7", "gone b@6"}, "a@7"},
		"not when it has come and gone":          {[]string{"begin", "list 5", "watch a@7", "gone a@8", "wrote a@7"}, ""},
		"in a list that began before":            {[]string{"begin", "wrote a@7", "list 6"}, "a@7"},
		"a later version in such a list":         {[]string{"begin", "wrote a@7", "list 9 a@8"}, "a@8"},
		"not what such a list shows as gone":     {[]string{"begin", "wrote a@7", "list 9"}, ""},
		"not what a list that began after lacks": {[]string{"list 50", "wrote a@70", "begin", "list 9"}, ""},
		"a restored version":                     {[]string{"list 50", "wrote a@70", "begin", "list 9 a@8"}, "a@8"},
		"the next write, too":                    {[]string{"list 5", "wrote a@7", "wrote a@9", "watch a@7"}, "a@9"},
		"not an earlier answer":                  {[]string{"list 5", "wrote a@9", "wrote a@7"}, "a@9"},

		"what was deleted still ends":         {[]string{"list 5 a@3", "deleted a"}, "a@3 ending"},
		"whatever the watch shows":            {[]string{"list 5 a@3", "deleted a", "watch a@6"}, "a@6 ending"},
		"whatever an earlier list shows":      {[]string{"list 5 a@3", "begin", "deleted a", "list 6 a@3"}, "a@3 ending"},
		"until it is gone":                    {[]string{"list 5 a@3", "deleted a", "watch a@6 ending", "gone a@7"}, ""},
		"and another one has its name":        {[]string{"list 5 a@3", "deleted a", "watch b@6"}, "b@6"},
		"not another one of its name":         {[]string{"list 5 b@3", "deleted a"}, "b@3"},
		"unless a later list says otherwise":  {[]string{"list 5 a@3", "deleted a", "begin", "list 4 a@3"}, "a@3"},
		"also after a write":                  {[]string{"list 5", "wrote a@7", "deleted a", "watch a@7"}, "a@7 ending"},
		"also before the answer to a write":   {[]string{"list 5 a@3", "deleted a", "wrote a@7"}, "a@7 ending"},
		"which does not bring it back":        {[]string{"list 5 a@3", "deleted a", "gone a@8", "wrote a@7"}, ""},
		"what is deleted and written again":   {[]string{"list 5 a@3", "deleted a", "wrote b@9", "gone a@8"}, "b@9"},
		"what another client deletes by then": {[]string{"list 5 a@3", "wrote a@7", "watch a@8 ending"}, "a@8 ending"},

		"while an earlier version waits":      {[]string{"list 5 a@3", "read a@6", "wrote a@7"}, "a@7"},
		"while a later version waits":         {[]string{"list 5 a@3", "read a@8", "wrote a@7"}, "a@7"},
		"until that is decoded":               {[]string{"list 5 a@3", "read a@8", "wrote a@7", "decode"}, "a@8"},
		"not before what is decoded":          {[]string{"list 5", "watch a@8", "read a@9", "wrote a@7"}, "a@8"},
		"only the last version":               {[]string{"list 5 a@3", "read a@6", "read a@8", "decode"}, "a@8"},
		"not what a list has replaced":        {[]string{"list 5 a@3", "read a@6", "list 4 a@2", "decode"}, "a@2"},
		"the end of what waits":               {[]string{"list 5 a@3", "read a@6", "ended a@7", "decode"}, ""},
		"what follows on an end that waits":   {[]string{"list 5 a@3", "ended a@7", "read b@8", "decode"}, "b@8"},
		"what is deleted while its end waits": {[]string{"list 5 a@3", "ended a@7", "deleted a", "decode"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOwnSource(t)
			for _, step := range tc.steps {
				s.do(t, step)
			}
			require.Equal(t, tc.want, s.state())
		})
	}
}

// What was written is reported as changed when the watch shows it, as what others write.
func TestWhatWasWrittenIsReportedWhenTheWatchShowsIt(t *testing.T) {
	for _, steps := range [][]string{{"list 5", "wrote a@7", "watch a@7"}, {"list 5", "wrote a@7", "begin", "list 7 a@7"}} {
		s := newOwnSource(t)
		for _, step := range steps {
			require.Zero(t, s.changed)
			s.do(t, step)
		}
		require.Equal(t, 1, s.changed)
		require.Empty(t, s.own)
	}
}

// Half of what the watch of a scheduler brings are its own writes.
func TestWhatWasWrittenIsNotDecodedAgain(t *testing.T) {
	s := newOwnSource(t)
	s.do(t, "list 5")
	s.do(t, "wrote a@7")
	own := brings(t, web("a@7"))
	own.raw = []byte("cannot be decoded")
	require.NoError(t, s.Add(own))
	s.do(t, "decode")
	require.Equal(t, "a@7", s.state())
	require.Equal(t, 1, s.changed)
	require.Empty(t, s.own)
	require.Zero(t, s.line.bytes)
}
