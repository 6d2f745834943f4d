// A small HTTP server for workloads.
module github.com/kcpctl/kcpctl/test/testbed/build/web

go 1.26.0
