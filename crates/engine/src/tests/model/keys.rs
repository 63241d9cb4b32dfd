//! Keys of the model, and its refusals.

use super::masks::masked;
use super::*;

/// Returns how a write is refused. `reads`, `collects`: how its client counts.
pub(super) fn refused(rules: &Rules, write: &Observation<'_>, reads: bool, collects: bool) -> Answer {
    let first_of_old = first_repeat_of_an_old_client(write);
    let forbidden = rules.rejection == Rejection::Forbidden || write.has_series && !first_of_old;
    match (write.operation, write.api) {
        (Operation::Update, Api::Events) if collects => Answer::Deny(Denial::Forbidden),
        (Operation::Update, Api::Events) if !first_of_old => Answer::Restore,
        (Operation::Update, Api::Core) if reads => Answer::Restore,
        (Operation::Create, _) if forbidden => Answer::Deny(Denial::Forbidden),
        _ => Answer::Deny(Denial::AlreadyExists),
    }
}

/// Whether it is the first repeat of an old client-go recorder, which counted from 1.
pub(super) fn first_repeat_of_an_old_client(write: &Observation<'_>) -> bool {
    write.api == Api::Events && write.has_series && write.value < 2
}

pub(super) fn emitter(write: &Observation<'_>) -> Key {
    let (component, instance) = write.event.reporter();
    [write.user, component, instance].map(ToOwned::to_owned).to_vec()
}

pub(super) fn object(of: &ObjectReference<'_>) -> Key {
    [&of.api_version, &of.kind, &of.namespace, &of.name, &of.uid].map(ToString::to_string).to_vec()
}

pub(super) fn key_of(write: &Observation<'_>, masks: Masks) -> Key {
    let event = &write.event;
    let is_aggregate = event.message.starts_with(AGGREGATE_PREFIX);
    let message = if is_aggregate { AGGREGATE_PREFIX.to_owned() } else { masked(event, masks) };
    let related = event
        .related
        .as_ref()
        .map_or(Vec::new(), |related| [object(related), vec![related.field_path.to_string()]].concat());
    let own = [&event.regarding.field_path, &event.event_type, &event.reason, &event.action];
    let own = own.map(ToString::to_string).to_vec();
    [emitter(write), object(&event.regarding), own, vec![message], related].concat()
}

/// Returns the key of its group and its fingerprint there.
pub(super) fn group_of(write: &Observation<'_>, group_by: GroupBy, masks: Masks) -> (Key, Key) {
    let event = &write.event;
    let regarding = object(&event.regarding);
    let message = masked(event, masks);
    let (who, reported) = match group_by {
        GroupBy::Object => ([emitter(write), regarding].concat(), vec![message]),
        GroupBy::Kind => {
            let kind = [&*event.reporting_component, &*event.regarding.kind, &*event.regarding.api_version];
            (kind.map(ToOwned::to_owned).to_vec(), [regarding, vec![message]].concat())
        }
    };
    ([who, vec![event.event_type.to_string(), event.reason.to_string()]].concat(), reported)
}
