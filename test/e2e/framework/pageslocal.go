package framework

// MakeDemo is what make demo runs in the end. It also builds kcpctl and downloads kcp, which tests have.
const MakeDemo = "bin/kcpctl up --local -f examples/sharded.yaml"
