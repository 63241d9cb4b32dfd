//! The writes of the load.

use jiff::Timestamp;
use squelch_engine::{Api, Observation, Operation};

use super::events::{event, message, pod, stored_name};
use super::{Load, PER_OBJECT, REPEATED, STORED, STORMY};

impl Load {
    /// An UPDATE of the next series with one more occurrence: merged.
    pub(crate) fn repeat(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        self.repeat_of(turn, round)
    }

    /// Same as `repeat`, in a storm of a thousand series.
    pub(crate) fn repeat_in_storm(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        self.repeat_of(turn % STORMY * (self.series / STORMY), round)
    }

    fn repeat_of(&self, turn: usize, round: u32) -> Observation<'_> {
        Observation {
            operation: Operation::Update,
            value: STORED + i64::from(round),
            old_value: STORED,
            ..self.write(turn, stored_name(turn), message(turn))
        }
    }

    /// A CREATE of one series in [`REPEATED`] under a new name: merged.
    pub(crate) fn repeat_by_create(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let turn = turn - turn % REPEATED;
        self.write(turn, format!("{}.{round:x}", pod(turn)), message(turn))
    }

    /// A CREATE about a new object: admitted, opens a series.
    pub(crate) fn newcomer(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let object = self.series + round as usize;
        Observation {
            event: event(object, message(object)),
            ..self.write(turn, format!("{}.{round:x}", pod(object)), String::new())
        }
    }

    /// A CREATE with a new message about the next object: aggregated after the first ten.
    pub(crate) fn similar_write(&self) -> Observation<'_> {
        let (turn, round) = self.next();
        let object = turn / PER_OBJECT * PER_OBJECT;
        let message = format!("{}, try {round}", message(object));
        self.write(object, format!("{}.{round:x}", pod(object)), message)
    }

    /// An UPDATE that changes only the message and reports no occurrence: passed.
    pub(crate) fn edit(&self) -> Observation<'_> {
        let (turn, _) = self.next();
        Observation {
            operation: Operation::Update,
            value: STORED,
            old_value: STORED,
            unchanged: true,
            ..self.write(turn, stored_name(turn), message(turn))
        }
    }

    /// A CREATE that reports a series under one of its names. The Event is stored under name 0 if that is written
    /// first.
    pub(crate) fn create(&self, turn: usize, name: usize) -> Observation<'_> {
        let name = format!("{}.{:016x}", pod(turn), 0x187a_2b3c_4d5e_6f70 + name);
        self.write(turn, name, message(turn))
    }

    /// A CREATE of a new key in the namespace of this number.
    pub(crate) fn invented(&self, namespace: usize, number: usize) -> Observation<'_> {
        let turn = namespace * self.per_namespace + number % self.per_namespace;
        let name = format!("{}.{:016x}", pod(turn), 0x2000_0000_0000_0000 + number);
        self.write(turn, name, format!("{}, try {number}", message(turn)))
    }

    fn write(&self, turn: usize, name: String, message: String) -> Observation<'_> {
        Observation {
            operation: Operation::Create,
            api: Api::Core,
            user: "system:node:node-17",
            own: false,
            dry_run: false,
            namespace: &self.namespaces[self.namespace_of(turn)],
            name: Some(name.into()),
            generate_name: "".into(),
            event: event(turn, message),
            value: 1,
            old_value: 0,
            has_series: false,
            edited: false,
            unchanged: false,
            stale: false,
            first_seen: None,
            last_observed: None,
            occurred_at: Timestamp::UNIX_EPOCH,
        }
    }
}
