//! Transitions of a status for which squelch emits an Event about the policy. Pure.

use crate::api::{ConditionType, EventPolicyStatus, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// A transition of a policy's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The kind of transition.
    pub kind: TransitionKind,
    /// The message of the condition.
    pub message: String,
}

/// The kinds of transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransitionKind {
    /// The policy is valid.
    Accepted,
    /// The policy is invalid or exceeds a limit.
    Rejected,
    /// Policies of higher precedence govern every Event that it matches.
    Overridden,
}

/// Returns the transitions from `before` to `after`. `before` is `None` for a policy without a status. Arming the webhook
/// is no transition, since it changes all policies at once.
pub fn transitions(before: Option<&EventPolicyStatus>, after: &EventPolicyStatus) -> Vec<Transition> {
    let mut transitions = Vec::new();
    for condition_type in ConditionType::ALL {
        let Some(now) = condition(after, condition_type) else { continue };
        let Some(kind) = transition_kind(condition_type, &now.reason) else { continue };
        let was = before.and_then(|status| condition(status, condition_type));
        // A changed message matters for an invalid or overridden policy.
        let unchanged = was.is_some_and(|was| {
            was.reason == now.reason && (kind == TransitionKind::Accepted || was.message == now.message)
        });
        if !unchanged {
            transitions.push(Transition { kind, message: now.message.clone() });
        }
    }
    transitions
}

/// Returns the condition of this type.
pub(super) fn condition(status: &EventPolicyStatus, condition_type: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == condition_type.as_str())
}

fn transition_kind(condition_type: ConditionType, reason: &str) -> Option<TransitionKind> {
    let is = |expected: Reason| reason == expected.as_str();
    match condition_type {
        ConditionType::Accepted if is(Reason::Accepted) => Some(TransitionKind::Accepted),
        ConditionType::Accepted if is(Reason::Pending) => None,
        ConditionType::Accepted => Some(TransitionKind::Rejected),
        ConditionType::Effective if is(Reason::Overridden) => Some(TransitionKind::Overridden),
        ConditionType::Effective | ConditionType::Stalled => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use jiff::Timestamp;

    fn status(accepted: (Reason, &str), effective: (Reason, &str)) -> EventPolicyStatus {
        let conditions = [(ConditionType::Accepted, accepted), (ConditionType::Effective, effective)];
        let conditions = conditions.map(|(condition_type, (reason, message))| Condition {
            type_: condition_type.as_str().to_owned(),
            status: reason.status().to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        });
        EventPolicyStatus { conditions: conditions.into(), ..EventPolicyStatus::default() }
    }

    fn kinds(before: Option<&EventPolicyStatus>, after: &EventPolicyStatus) -> Vec<TransitionKind> {
        transitions(before, after).into_iter().map(|transition| transition.kind).collect()
    }

    #[test]
    fn unchanged_conditions_are_no_transitions() {
        let good = status((Reason::Accepted, "fine"), (Reason::Effective, "decides"));
        let disarmed = status((Reason::Accepted, "fine"), (Reason::WebhookNotArmed, "not armed"));
        let by_a = status((Reason::Accepted, "fine"), (Reason::Overridden, "by a"));
        let by_b = status((Reason::Accepted, "fine"), (Reason::Overridden, "by b"));
        let bad = status((Reason::Invalid, "this"), (Reason::Invalid, "nothing"));
        let beyond = status((Reason::TooManyPolicies, "64"), (Reason::TooManyPolicies, "nothing"));
        let worse = status((Reason::Invalid, "that"), (Reason::Invalid, "nothing"));
        for (before, after, expected) in [
            (None, &good, &[TransitionKind::Accepted][..]),
            (Some(&good), &good, &[]),
            (Some(&good), &disarmed, &[]),
            (Some(&disarmed), &good, &[]),
            (Some(&good), &by_a, &[TransitionKind::Overridden]),
            (Some(&by_a), &by_a, &[]),
            (Some(&by_a), &by_b, &[TransitionKind::Overridden]),
            (Some(&by_b), &good, &[]),
            (None, &by_a, &[TransitionKind::Accepted, TransitionKind::Overridden]),
            (Some(&good), &bad, &[TransitionKind::Rejected]),
            (Some(&bad), &bad, &[]),
            (Some(&bad), &worse, &[TransitionKind::Rejected]),
            (Some(&worse), &good, &[TransitionKind::Accepted]),
            (None, &beyond, &[TransitionKind::Rejected]),
            (Some(&beyond), &beyond, &[]),
            (Some(&bad), &beyond, &[TransitionKind::Rejected]),
            (Some(&beyond), &good, &[TransitionKind::Accepted]),
        ] {
            assert_eq!(kinds(before, after), expected, "{before:?} to {after:?}");
        }
        assert_eq!(transitions(Some(&good), &bad)[0].message, "this");
    }
}
