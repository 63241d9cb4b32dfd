//! Who wishes squelch harm, by the two ways there are: straight at its port, and through the API server. Nobody else
//! notices.

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
