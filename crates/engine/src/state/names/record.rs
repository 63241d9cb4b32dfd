//! What is remembered of one Event name.

use crate::decide::keys::Hasher;
use crate::state::live_series::Handle;
use crate::store::packed_series::count;
use crate::store::stamp::Stamp;
use crate::{Moment, Observation, Operation};

/// What is remembered of one Event name: 28 bytes, and 48 with key and chain. There are two for each series.
#[derive(Clone, Copy, Default)]
pub(super) struct NameRecord {
    /// Highest absolute value seen, refused or not; at most `i32::MAX`. The top bit is [`READS`].
    highest: u32,
    /// The series of this name's UPDATEs, while it is live.
    pub(super) series: Handle,
    /// Latest occurrence time under this name, see [`occurrence_time`], or 0; with [`OWNER_CONFIRMED`], [`SHARED`] and
    /// [`CREATED`].
    pub(super) occurred: u32,
    /// Time of the last write of this name.
    pub(super) seen: Stamp,
    /// Hash of the user of the highest value, and [`STORED`].
    user: [u8; 3],
}

/// Bit of [`NameRecord::user`]: this is the name of the series' stored Event.
pub(super) const STORED: u32 = 1 << 23;

/// Bit of [`NameRecord::highest`]: the user reads the stored count, adds one and writes it back.
const READS: u32 = 1 << 31;

/// Bit of [`NameRecord::occurred`]: the stored Event belongs to this user, because they updated it or squelch
/// read it. A CREATE does not confirm this, because the API server may reject it after admission.
pub(super) const OWNER_CONFIRMED: u32 = 1 << 31;

/// Bit of [`NameRecord::occurred`]: several clients reported to the last series stored under this name.
pub(super) const SHARED: u32 = 1 << 30;

/// Bit of [`NameRecord::occurred`]: a CREATE with the highest value was admitted, and no UPDATE has followed. The API
/// server may have refused it.
const CREATED: u32 = 1 << 29;

/// Bits of [`NameRecord::occurred`] for the time.
const TIME: u32 = CREATED - 1;

impl NameRecord {
    /// Returns the record of a new name.
    pub(super) fn first_seen(user: u32, write: &Observation<'_>, now: Moment) -> Self {
        let mut name = Self {
            highest: count(write.value),
            occurred: occurrence_time(write).unwrap_or(0),
            seen: Stamp::at(now),
            ..Self::default()
        };
        name.set_user(user, false);
        name.confirm_owner(write);
        name
    }

    /// Returns the record after this user reported more than anyone before.
    pub(super) fn raised(mut self, user: u32, write: &Observation<'_>) -> Self {
        let reads = if user == self.user() { self.highest & READS } else { 0 };
        self.highest = count(write.value) | reads;
        self.set_user(user, self.is_stored());
        self
    }

    /// Returns the occurrences of a write: its value beyond the highest one. A client that reads the stored
    /// count, adds one and writes it back never exceeds the highest value while its writes are merged. Such a
    /// write carries one occurrence if its time is later than all earlier ones; a retry repeats the time.
    pub(super) fn carried(&mut self, user: u32, write: &Observation<'_>) -> i64 {
        let beyond = (write.value - self.highest()).max(0);
        let adds_one = write.operation == Operation::Update && write.value == write.old_value + 1;
        let is_later = self.is_before(write);
        let is_its_user = self.user() == user;
        if adds_one && is_later && beyond == 0 && is_its_user {
            self.highest |= READS;
        }
        let reads = self.reads();
        match write.operation {
            // The highest value of another user does not count this user's occurrences. A write that adds one to
            // the stored count has read it.
            Operation::Update if adds_one && !is_its_user => i64::from(is_later || beyond > 0),
            // Also if another write has raised the stored count since the client read it.
            Operation::Update if reads && write.value <= write.old_value + 1 => {
                i64::from(is_later || beyond > 0)
            }
            // A flush may have raised the count that it has read.
            Operation::Create if reads => beyond.min(1),
            _ => beyond,
        }
    }

    /// Records the occurrence time of a write.
    pub(super) fn record_occurrence(&mut self, write: &Observation<'_>) {
        if self.is_before(write)
            && let Some(time) = occurrence_time(write)
        {
            self.occurred = self.occurred & !TIME | time;
        }
        self.confirm_owner(write);
    }

    /// Forgets the time of the last occurrence. After more than a day no retry is left, and the clock of the record may have
    /// wrapped.
    pub(super) fn forget_time(&mut self) {
        self.occurred &= !TIME;
    }

    /// Records that a CREATE with the highest value is admitted.
    pub(super) fn record_created(&mut self) {
        self.occurred |= CREATED;
    }

    /// Returns how many occurrences of an admitted CREATE the stored count of an UPDATE lacks. Only a retry of the CREATE,
    /// or of an earlier one with a lower value, keeps [`CREATED`].
    pub(super) fn missing(&mut self, write: &Observation<'_>) -> i64 {
        let is_update = write.operation == Operation::Update;
        let was_created = self.occurred & CREATED != 0;
        // A retry repeats its time, and an Event created anew has a later one.
        let is_anew = write.value > self.highest() || write.value < self.highest() && self.is_before(write);
        if is_update || is_anew {
            self.occurred &= !CREATED;
        }
        if is_update && was_created { (self.highest() - write.old_value).max(0) } else { 0 }
    }

    /// Confirms the owner by an UPDATE: its Event is stored, and its user may change it.
    fn confirm_owner(&mut self, write: &Observation<'_>) {
        if write.operation == Operation::Update {
            self.occurred |= OWNER_CONFIRMED;
        }
    }

    /// Whether the write's occurrence time is later than all seen. The 29-bit clock compares times up to 3 days
    /// apart. The last one is forgotten after a day, and times are at most another day older.
    fn is_before(&self, write: &Observation<'_>) -> bool {
        let seen = self.occurred & TIME;
        occurrence_time(write).is_some_and(|time| {
            let later_by = time.wrapping_sub(seen) & TIME;
            seen == 0 || (1..=TIME / 2).contains(&later_by)
        })
    }

    pub(super) fn highest(&self) -> i64 {
        i64::from(self.highest & !READS)
    }

    /// Whether the user of the highest value reads the stored count, adds one and writes it back.
    pub(super) fn reads(&self) -> bool {
        self.highest & READS != 0
    }

    pub(super) fn is_owner_confirmed(&self) -> bool {
        self.occurred & OWNER_CONFIRMED != 0
    }

    pub(super) fn is_stored(&self) -> bool {
        self.bits() & STORED != 0
    }

    pub(super) fn user(&self) -> u32 {
        self.bits() & !STORED
    }

    pub(super) fn set_user(&mut self, user: u32, stored: bool) {
        let [a, b, c, _] = (user | if stored { STORED } else { 0 }).to_le_bytes();
        self.user = [a, b, c];
    }

    fn bits(&self) -> u32 {
        let [a, b, c] = self.user;
        u32::from_le_bytes([a, b, c, 0])
    }
}

/// Returns the last occurrence time: milliseconds in 29 bits, which wrap after 6 days. Never 0, which means no
/// time.
fn occurrence_time(write: &Observation<'_>) -> Option<u32> {
    write.last_observed.map(|time| (time.as_millisecond() as u32 & TIME).max(1))
}

/// Returns 23 bits of the user's hash. A collision needs one of 8 million users, cannot be searched for, and
/// counts some occurrences too many.
pub(super) fn user(hasher: &Hasher, user: &str) -> u32 {
    hasher.user(user) as u32 % STORED
}
