module squelch.dev/e2e/cluster/pod

go 1.25.0
