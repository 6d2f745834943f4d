// A client that dials addresses from inside a pod.
module github.com/kcpctl/kcpctl/test/testbed/build/dial

go 1.26.0
