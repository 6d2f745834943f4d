// The process that holds a pod's namespaces.
module github.com/kcpctl/kcpctl/test/testbed/build/pause

go 1.26.0
