//! Tests of the module as a whole: scenarios at the HTTP seam, and the validity of every write.

mod api_server;
mod fixtures;
mod scenarios;
mod tenants;
mod validation;
