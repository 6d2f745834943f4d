package check

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
)

// The metrics of etcd that are read.
const (
	metricDatabase = "etcd_mvcc_db_total_size_in_bytes"
	metricQuota    = "etcd_server_quota_backend_bytes"
)

// almostFull is the share of its quota from which on an etcd counts as almost full, also for the alert
// KcpEtcdQuotaNear.
const almostFull = 0.8

// room asks every managed etcd for the size of its database.
func room(ctx context.Context, s *Subject) outcome {
	etcds := s.Topology.OfKind(topology.Etcd)
	if len(etcds) == 0 {
		return skipped("no etcd is managed")
	}
	return s.eachOf(etcds, func(c *topology.Component) (o outcome) {
		size, quota, err := s.database(ctx, c)
		switch {
		case err != nil:
			o.fail("%s: %s", s.named(c), reason(ctx, err))
		case quota > 0 && float64(size) >= almostFull*float64(quota):
			o.warn("%s: its database has %s", s.named(c), bytesize.Of(size, quota))
		}
		return o
	})
}

// database returns the size of the database of an etcd in bytes, and its quota.
func (s *Subject) database(ctx context.Context, c *topology.Component) (size, quota int64, err error) {
	client := s.etcd(c)
	defer client.Close()
	body, err := client.Open(ctx, "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer body.Close()
	return sizes(body)
}

// sizes reads both sizes from metrics in the text format of Prometheus.
func sizes(metrics io.Reader) (size, quota int64, err error) {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if name != metricDatabase && name != metricQuota {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, 0, err
		}
		if name == metricDatabase {
			size = int64(value)
		} else {
			quota = int64(value)
		}
	}
	return size, quota, lines.Err()
}

// etcd returns a client with the certificate that the members of an etcd use among themselves.
func (s *Subject) etcd(c *topology.Component) *kcp.Client {
	return kcp.New(kcp.Options{
		URL: c.URL, CA: s.state.CAs[topology.EtcdCA].Trusted(), Dial: s.dialer(c),
		Pair: s.state.Leaves[pki.KeyOf(c, topology.CertServer)],
	})
}
