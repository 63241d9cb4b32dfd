//! Tests of the whole path from policy objects to the governing policy.

mod precedence;
