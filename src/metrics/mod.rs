//! To be filled.
/// x
#[derive(Default)]
pub struct Metrics;
impl Metrics { /// x
 pub fn flushed(&self, _: FlushResult) {} }
/// x
pub enum FlushResult { /// x
 Written, /// x
 Created, /// x
 Confirmed, /// x
 Conflict, /// x
 Failed, /// x
 Lost }
