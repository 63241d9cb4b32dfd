//! Hostile callers at squelch's port, and hostile tenants through the API server. Others must not be affected.

mod bodies;
mod callers;
mod floods;
mod forgeries;
mod frames;
mod globs;
mod imitation;
mod leaked_token;
mod paced;
mod reviews;
mod rows;
mod script;
mod sink;
mod sockets;
mod tenancy;
mod tenant;
mod texts;
mod wire;
