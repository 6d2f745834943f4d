package check

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
)

// metricDatabase is the metric of etcd for the size of its database, with what compaction left behind.
const metricDatabase = "etcd_mvcc_db_total_size_in_bytes"

var errNoSize = errors.New("its metrics do not have " + metricDatabase)

// room asks every managed etcd for the size of its database.
func room(ctx context.Context, s *Subject) outcome {
	etcds := s.Topology.OfKind(topology.Etcd)
	if len(etcds) == 0 {
		return skipped("no etcd is managed")
	}
	return s.eachOf(etcds, func(c *topology.Component) (o outcome) {
		size, err := s.database(ctx, c)
		quota := s.Topology.Quota(c)
		switch {
		case err != nil:
			o.fail("%s: %s", s.named(c), reason(ctx, err))
		case float64(size) >= topology.AlmostFull*float64(quota):
			o.warn("%s: its database has %s", s.named(c), bytesize.Of(size, quota))
		}
		return o
	})
}

// database returns the size of the database of an etcd in bytes.
func (s *Subject) database(ctx context.Context, c *topology.Component) (int64, error) {
	client := s.etcd(c)
	defer client.Close()
	body, err := client.Open(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), " "); name == metricDatabase {
			size, err := strconv.ParseFloat(value, 64)
			return int64(size), err
		}
	}
	return 0, cmp.Or(lines.Err(), errNoSize)
}

// etcd returns a client with the certificate that the members of an etcd use among themselves.
func (s *Subject) etcd(c *topology.Component) *kcp.Client {
	return kcp.New(kcp.Options{
		URL: c.URL, CA: s.state.CAs[topology.EtcdCA].Trusted(), Dial: s.dialer(c),
		Pair: s.state.Leaves[pki.KeyOf(c, topology.CertServer)],
	})
}
