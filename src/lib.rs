//! squelch: the Event policy operator for Kubernetes.
