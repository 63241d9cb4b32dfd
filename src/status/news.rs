//! What of a status is worth an Event about its policy. Pure: the same two statuses, the same news.

use crate::api::{ConditionType, EventPolicyStatus, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// What has become of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Which kind of news.
    pub what: Verdict,
    /// What its status says of it.
    pub message: String,
}

/// The news there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The spec is understood.
    Accepted,
    /// The spec is wrong, or there are too many policies: this one enforces nothing.
    Rejected,
    /// Policies of higher precedence leave it nothing to govern.
    Overridden,
}

/// What a reader of `before` (`None`: a policy without a status) does not know and `after` says. That a policy is not
/// armed, or effective, is no news of the policy: it would be told once for each.
pub fn news(before: Option<&EventPolicyStatus>, after: &EventPolicyStatus) -> Vec<News> {
    let mut news = Vec::new();
    for kind in ConditionType::ALL {
        let Some(now) = condition(after, kind) else { continue };
        let Some(what) = verdict(kind, &now.reason) else { continue };
        let was = before.and_then(|status| condition(status, kind));
        // Why it is accepted nobody asks; what is wrong with it and who overrides it does matter.
        let known = was.is_some_and(|was| {
            was.reason == now.reason && (what == Verdict::Accepted || was.message == now.message)
        });
        if !known {
            news.push(News { what, message: now.message.clone() });
        }
    }
    news
}

fn condition(status: &EventPolicyStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

fn verdict(kind: ConditionType, reason: &str) -> Option<Verdict> {
    let is = |meant: Reason| reason == meant.as_str();
    match kind {
        ConditionType::Accepted if is(Reason::Accepted) => Some(Verdict::Accepted),
        ConditionType::Accepted if is(Reason::Invalid) || is(Reason::TooManyPolicies) => {
            Some(Verdict::Rejected)
        }
        ConditionType::Effective if is(Reason::Overridden) => Some(Verdict::Overridden),
        ConditionType::Accepted | ConditionType::Effective => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use jiff::Timestamp;

    fn status(accepted: (Reason, &str), effective: (Reason, &str)) -> EventPolicyStatus {
        let said = [(ConditionType::Accepted, accepted), (ConditionType::Effective, effective)];
        let conditions = said.map(|(kind, (reason, message))| Condition {
            type_: kind.as_str().to_owned(),
            status: reason.status().to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        });
        EventPolicyStatus { conditions: conditions.into(), ..EventPolicyStatus::default() }
    }

    fn told(before: Option<&EventPolicyStatus>, after: &EventPolicyStatus) -> Vec<Verdict> {
        news(before, after).into_iter().map(|news| news.what).collect()
    }

    #[test]
    fn only_what_changes_is_news() {
        let good = status((Reason::Accepted, "fine"), (Reason::Effective, "decides"));
        let unarmed = status((Reason::Accepted, "fine"), (Reason::WebhookNotArmed, "not armed"));
        let by_a = status((Reason::Accepted, "fine"), (Reason::Overridden, "by a"));
        let by_b = status((Reason::Accepted, "fine"), (Reason::Overridden, "by b"));
        let bad = status((Reason::Invalid, "this"), (Reason::Invalid, "nothing"));
        let beyond = status((Reason::TooManyPolicies, "64"), (Reason::TooManyPolicies, "nothing"));
        let worse = status((Reason::Invalid, "that"), (Reason::Invalid, "nothing"));
        for (before, after, expected) in [
            (None, &good, &[Verdict::Accepted][..]),
            (Some(&good), &good, &[]),
            (Some(&good), &unarmed, &[]),
            (Some(&unarmed), &good, &[]),
            (Some(&good), &by_a, &[Verdict::Overridden]),
            (Some(&by_a), &by_a, &[]),
            (Some(&by_a), &by_b, &[Verdict::Overridden]),
            (Some(&by_b), &good, &[]),
            (None, &by_a, &[Verdict::Accepted, Verdict::Overridden]),
            (Some(&good), &bad, &[Verdict::Rejected]),
            (Some(&bad), &bad, &[]),
            (Some(&bad), &worse, &[Verdict::Rejected]),
            (Some(&worse), &good, &[Verdict::Accepted]),
            (None, &beyond, &[Verdict::Rejected]),
            (Some(&beyond), &beyond, &[]),
            (Some(&bad), &beyond, &[Verdict::Rejected]),
            (Some(&beyond), &good, &[Verdict::Accepted]),
        ] {
            assert_eq!(told(before, after), expected, "{before:?} to {after:?}");
        }
        assert_eq!(news(Some(&good), &bad)[0].message, "this");
    }
}
