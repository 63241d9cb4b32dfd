//! Names of Events, their users, and the occurrences of a write.

use super::*;

impl NaiveModel {
    pub(super) fn named(&mut self, write: &Observation<'_>) -> Option<&mut Name> {
        let name = write.name.as_deref()?;
        self.names.iter_mut().find(|known| known.name == name)
    }

    pub(super) fn is_above_its_own(&mut self, write: &Observation<'_>) -> bool {
        self.named(write).is_some_and(|name| write.value > name.highest && name.user == write.user)
    }

    /// Returns a name that a user claimed by a CREATE to the user who updates its Event, and removes the series
    /// stored under it.
    fn return_name(&mut self, write: &Observation<'_>) {
        let Some(at) = self.names.iter().position(|known| write.name.as_deref() == Some(&*known.name)) else {
            return;
        };
        let taken = write.operation == Operation::Update
            && self.names[at].user != write.user
            && !self.names[at].owner_confirmed;
        if taken {
            let name = self.names.remove(at);
            self.series.retain(|series| Some(series.number) != name.series || series.name != name.name);
        }
    }

    /// Returns the occurrences of a write and when its name was seen before.
    pub(super) fn carried(&mut self, write: &Observation<'_>, now: Moment) -> Carried {
        let by = |occurrences, seen_before| Carried { occurrences, seen_before, created: 0, foreign: false };
        let Some(name) = write.name.clone() else { return by(write.value, None) };
        let update = write.operation == Operation::Update;
        self.return_name(write);
        if let Some(known) = self.named(write) {
            if !update && known.user != write.user {
                return Carried { foreign: true, ..by(1, None) };
            }
            let created = if known.created { known.highest } else { 0 };
            let one_more = update && write.value == write.old_value + 1;
            let later = write.last_observed.is_some() && write.last_observed > known.latest;
            known.created &= !update && write.value <= created && !(write.value < created && later);
            let another = known.user != write.user;
            known.reads |= one_more && !another && later && write.value <= known.highest;
            let beyond = (write.value - known.highest).max(0);
            let behind = update && write.value <= write.old_value;
            let carried = if one_more && (known.reads || another) || known.reads && behind {
                i64::from(later || beyond > 0)
            } else if known.reads && !update {
                beyond.min(1)
            } else {
                beyond
            };
            if beyond > 0 {
                known.reads &= known.user == write.user;
                (known.highest, known.user) = (write.value, write.user.to_owned());
            }
            if update || carried > 0 {
                known.latest = known.latest.max(write.last_observed);
            }
            known.owner_confirmed |= update;
            return Carried { created, ..by(carried, Some(std::mem::replace(&mut known.seen, now))) };
        }
        self.names.push(Name {
            name: name.into(),
            highest: write.value,
            user: write.user.to_owned(),
            seen: now,
            series: None,
            latest: write.last_observed,
            reads: false,
            shared: false,
            owner_confirmed: update,
            created: false,
        });
        let older = write.first_seen.is_some_and(|first| first < self.began);
        let carried = match write.operation {
            Operation::Create => {
                if older {
                    1
                } else {
                    write.value
                }
            }
            Operation::Update => (write.value - write.old_value).max(1),
        };
        by(carried, None)
    }
}
