//! End-to-end tests of squelch on a real API server.
