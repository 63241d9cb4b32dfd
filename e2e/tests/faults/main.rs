//! What can happen to a webhook in production, on the real node, while somebody independent writes Events: no write
//! fails, the API server is not held up, and squelch decides again by itself.

mod control;
mod glass;
mod gone;
mod kills;
mod measure;
mod policies;
mod restarts;
mod rows;
mod silent;
