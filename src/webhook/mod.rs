//! The way of a write: bytes -> [`review`] -> observation -> verdict -> bytes.
//!
//! It asks the policies and the engine, and knows neither who watches policies nor who pays debts.

mod answer;
mod patch;
pub mod review;
