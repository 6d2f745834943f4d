// Package long has end-to-end tests that take longer than those of make test: checks, shards, drains and moves under load,
// backups, lost members, several clusters, workloads, agents, and how front-proxies authenticate. make e2e-long runs them on
// two nodes.
package long
