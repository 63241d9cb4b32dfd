// Only the root of the module: go.v1.MINOR.mod has the modules of each Kubernetes (hack/kubernetes-mod).
module squelch.dev/e2e/cluster/kube

go 1.26.0
