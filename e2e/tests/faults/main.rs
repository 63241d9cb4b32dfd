//! Faults of a webhook in production, on a real node, with an independent writer of Events: no write fails, the API
//! server is not delayed, and squelch recovers by itself.

mod break_glass;
mod control_plane;
mod killed;
mod measure;
mod moved_label;
mod no_replicas;
mod policies;
mod restarts;
mod rows;
mod unresponsive;
