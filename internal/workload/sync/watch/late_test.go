package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// A watch brings the objects of all tenants. One whose objects change all the time does not delay the others: nothing is
// decoded that a later version has replaced, and tenants are served in turn.
func TestAFloodDelaysOthersByOneObject(t *testing.T) {
	first, goOn := make(chan bool), make(chan bool)
	var order []string
	set, err := New(t.Context(), Options{Config: &rest.Config{}, Now: time.Now, Changed: func(_ schema.GroupVersionResource, k Key) {
		if order = append(order, k.String()); len(order) == 1 {
			close(first)
			<-goOn
		}
	}})
	require.NoError(t, err)
	s := newSource(Source{}, set)
	read := func(cluster, name string, version int) {
		u := web(fmt.Sprint("a@", version))
		u.SetName(name)
		u.SetAnnotations(map[string]string{clusterAnnotation: cluster})
		require.NoError(t, s.Add(brings(t, u)))
	}
	read("flood", "0", 1)
	ended := make(chan bool)
	go func() { s.decode(); close(ended) }()
	<-first
	for i := range 1000 {
		read("flood", fmt.Sprint(i%3), 2+i)
	}
	read("other", "web", 2000)
	close(goOn)
	s.line.turns.ShutDown()
	<-ended
	require.ElementsMatch(t, []string{"flood|/0", "flood|/0", "flood|/1", "flood|/2", "other|/web"}, order)
	require.Contains(t, order[1:3], "other|/web")
	require.Equal(t, "1001", s.set.unpack(s.get(Key{"flood", "", "0"})).GetResourceVersion())
	require.Zero(t, s.line.bytes)
}

// What waits is bounded: then the watch is not read, and the server waits.
func TestAWatchIsNotReadWhileTooMuchWaits(t *testing.T) {
	s := newOwnSource(t)
	big := brings(t, web("a@1"))
	big.raw = append(big.raw, make([]byte, mostWaiting)...)
	for i := range big.raw[len(big.raw)-mostWaiting:] {
		big.raw[len(big.raw)-mostWaiting+i] = ' '
	}
	require.NoError(t, s.Add(big)) // one object can be larger
	added := make(chan error)
	next := brings(t, web("a@2"))
	next.Name = "other"
	go func() { added <- s.Add(next) }()
	s.do(t, "decode")
	require.NoError(t, <-added)
	require.Equal(t, "a@1", s.state())
	require.Len(t, s.line.late, 1)
}
