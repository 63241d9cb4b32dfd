//! The armed state: the namespaces with rules, or why there are no rules. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{Moment, sanitise};

use super::probe::FailingServers;
use crate::policy::WebhookScope;

/// The break-glass annotation on the configuration. While it is set, to any value, there are no rules.
pub const DISARM_ANNOTATION: &str = "squelch.dev/disarm";

/// The time after which a deleted configuration is created again.
pub(super) const RECREATE_AFTER: Duration = Duration::from_secs(600);

/// Maximum characters of the annotation's value in messages.
const MAX_REASON: usize = 200;

/// Maximum characters of a message for the policies.
const MAX_MESSAGE: usize = 600;

/// The message for the policies before anything is known.
pub const NOT_PROBED_YET: &str = "No probe has confirmed yet that the API server reaches the webhook. All Events are \
                                  stored as written.";

/// The message for the policies after squelch has removed the rules at shutdown.
pub const SHUT_DOWN: &str = "squelch has shut down, and no other replica was ready. All Events are stored as \
                             written until a replica is active.";

/// Whether a person has disarmed the webhook through the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum BreakGlass {
    /// No.
    #[default]
    Off,
    /// By the annotation with this value.
    Annotated(String),
    /// By deleting the configuration. It is created again at this time.
    Deleted(Moment),
}

impl BreakGlass {
    /// Returns the state for an existing configuration with this annotation.
    pub(super) fn of_annotation(annotation: Option<&str>) -> Self {
        annotation.map_or(Self::Off, |reason| Self::Annotated(cleaned(reason, MAX_REASON)))
    }

    /// Returns the state after the configuration was found missing at `now`.
    pub(super) fn deleted(&self, now: Moment) -> Self {
        match self {
            Self::Deleted(until) => Self::Deleted(*until),
            Self::Off | Self::Annotated(_) => Self::Deleted(now.plus(RECREATE_AFTER)),
        }
    }

    /// Returns the time until a deleted configuration is created again. `None` if the configuration has to exist.
    pub(super) fn time_to_recreation(&self, now: Moment) -> Option<Duration> {
        let Self::Deleted(until) = self else { return None };
        Some(until.since(now)).filter(|left| !left.is_zero())
    }

    /// Whether a person has deleted the configuration.
    pub(super) fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted(_))
    }

    /// Ends a deletion at its time. Returns true once.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        let expired = matches!(self, Self::Deleted(until) if *until <= now);
        if expired {
            *self = Self::Off;
        }
        expired
    }
}

/// Sanitises and truncates foreign text for a single line.
fn cleaned(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).map(sanitise).collect()
}

/// The writes for which there are rules, or why the webhook is disarmed.
pub(super) type ArmedState = Result<WebhookScope, DisarmedReason>;

/// Why the webhook is disarmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DisarmedReason {
    /// No policy governs a namespace.
    NoPolicy,
    /// Probes do not confirm that the API servers reach the webhook. With those that fail.
    Unreachable(FailingServers),
    /// The webhook was just disarmed, for at least this long.
    Waiting(Duration),
    /// The annotation with this value.
    Annotated(String),
    /// A person has deleted the configuration.
    Deleted,
    /// The flag `--disarm`.
    Flag,
}

/// Returns the armed state. `unreachable` is why probes have not confirmed reachability, `disarmed` the flag
/// `--disarm`.
pub(super) fn armed_state(
    desired: &WebhookScope,
    unreachable: Option<FailingServers>,
    break_glass: &BreakGlass,
    disarmed: bool,
    now: Moment,
) -> ArmedState {
    if break_glass.time_to_recreation(now).is_some() {
        return Err(DisarmedReason::Deleted);
    }
    if let BreakGlass::Annotated(reason) = break_glass {
        return Err(DisarmedReason::Annotated(reason.clone()));
    }
    if disarmed {
        return Err(DisarmedReason::Flag);
    }
    if desired.is_none() {
        return Err(DisarmedReason::NoPolicy);
    }
    unreachable.map_or_else(|| Ok(desired.clone()), |failures| Err(DisarmedReason::Unreachable(failures)))
}

impl DisarmedReason {
    /// Whether the reason is a fault.
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Waiting(_))
    }

    /// Whether a person has asked for it.
    pub(super) fn is_break_glass(&self) -> bool {
        matches!(self, Self::Annotated(_) | Self::Deleted | Self::Flag)
    }

    /// Whether both are the same reason. Messages of probes may differ, because they may change each second.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unreachable(this), Self::Unreachable(that)) => this.api_servers == that.api_servers,
            _ => self == other,
        }
    }

    /// Returns the message for the conditions of the policies.
    pub(super) fn policy_message(&self) -> Arc<str> {
        match self {
            // A policy with this message exists. Its rules are not written yet.
            Self::NoPolicy => NOT_PROBED_YET.into(),
            _ => cleaned(&self.to_string(), MAX_MESSAGE).into(),
        }
    }
}

/// Returns the message about API servers that do not reach the armed webhook.
pub(super) fn tolerated_message(failures: &FailingServers) -> Arc<str> {
    let message = format!(
        "Event writes through some API servers pass uncounted and are stored as written, because these do not reach \
         the webhook: {}.",
        failures.message
    );
    cleaned(&message, MAX_MESSAGE).into()
}

impl fmt::Display for DisarmedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy => {
                f.write_str("No policy governs a namespace. No Event writes are sent to squelch.")
            }
            Self::Unreachable(FailingServers { message, .. }) => write!(
                f,
                "Probes do not confirm that the API servers reach the webhook: {message}. All Events are stored \
                 as written."
            ),
            Self::Waiting(wait) => write!(
                f,
                "Probes succeed, and the webhook was disarmed less than {} s ago. All Events are stored as written \
                 until then. The time doubles with each disarming within ten minutes.",
                wait.as_secs()
            ),
            Self::Annotated(reason) => write!(
                f,
                "The configuration has the annotation {DISARM_ANNOTATION} (\"{reason}\"). All Events are \
                 stored as written until it is removed."
            ),
            Self::Deleted => write!(
                f,
                "The configuration was deleted. All Events are stored as written. squelch creates it again {} \
                 minutes after the deletion, or when a squelch process starts.",
                RECREATE_AFTER.as_secs() / 60
            ),
            Self::Flag => f.write_str(
                "squelch runs with --disarm (or SQUELCH_DISARM=true). All Events are stored as written until it \
                 is started without.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> WebhookScope {
        WebhookScope::all_in(crate::policy::NamespaceSelection::All)
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn the_webhook_is_armed_if_there_is_no_reason_to_disarm_it() {
        let off = BreakGlass::default();
        assert_eq!(armed_state(&all(), None, &off, false, at(0)), Ok(all()));
        assert_eq!(
            armed_state(&WebhookScope::none(), None, &off, false, at(0)),
            Err(DisarmedReason::NoPolicy)
        );
        let unreachable =
            armed_state(&all(), Some(FailingServers::other("it hangs")), &off, false, at(0)).unwrap_err();
        assert!(unreachable.is_fault() && unreachable.to_string().contains("it hangs"));
    }

    #[test]
    fn the_annotation_disarms_with_any_value() {
        for value in ["", "INC-7"] {
            let break_glass = BreakGlass::of_annotation(Some(value));
            let reason = armed_state(&all(), None, &break_glass, false, at(0)).unwrap_err();
            assert!(reason.is_break_glass() && reason.to_string().contains(&format!("\"{value}\"")));
            assert_eq!(break_glass.time_to_recreation(at(0)), None, "the configuration stays");
        }
        assert_eq!(BreakGlass::of_annotation(None), BreakGlass::Off);
        assert_eq!(
            BreakGlass::of_annotation(Some("a\n\u{1b}[1mb")),
            BreakGlass::Annotated("a  [1mb".to_owned())
        );
    }

    #[test]
    fn the_flag_is_the_reason_with_and_without_policies() {
        for wanted in [all(), WebhookScope::none()] {
            let reason =
                armed_state(&wanted, Some(FailingServers::other("it hangs")), &BreakGlass::Off, true, at(0))
                    .unwrap_err();
            assert!(reason.is_break_glass() && !reason.is_fault());
            assert!(reason.policy_message().contains("--disarm"), "{reason}");
        }
    }

    #[test]
    fn the_message_for_policies_is_short_and_sanitised() {
        let foreign = format!("a\u{202e}{}", "x".repeat(10_000));
        for reason in [
            DisarmedReason::Unreachable(FailingServers::other(&foreign)),
            DisarmedReason::Annotated(cleaned(&foreign, MAX_REASON)),
        ] {
            let sentence = reason.policy_message();
            assert!(sentence.contains("a xxx") && sentence.chars().count() <= MAX_MESSAGE, "{sentence}");
        }
        assert_eq!(*DisarmedReason::NoPolicy.policy_message(), *NOT_PROBED_YET);
        let unreachable = |api_server: &str, message: &str| {
            let api_servers = vec![api_server.to_owned()];
            DisarmedReason::Unreachable(FailingServers { api_servers, message: message.to_owned() })
        };
        assert!(unreachable("a", "it hangs").is_same(&unreachable("a", "refused")));
        assert!(!unreachable("a", "it hangs").is_same(&unreachable("b", "it hangs")));
        assert!(!DisarmedReason::Annotated("a".into()).is_same(&DisarmedReason::Annotated("b".into())));
    }

    #[test]
    fn a_deleted_configuration_is_created_again_after_ten_minutes() {
        let break_glass = BreakGlass::Off.deleted(at(100));
        // Later reads do not extend the time.
        let mut break_glass = break_glass.deleted(at(300)).deleted(at(600));
        assert!(!break_glass.expire(at(699)));
        assert_eq!(break_glass.time_to_recreation(at(699)), Some(Duration::from_secs(1)));
        assert_eq!(armed_state(&all(), None, &break_glass, false, at(699)), Err(DisarmedReason::Deleted));
        assert_eq!(break_glass.time_to_recreation(at(700)), None);
        assert_eq!(armed_state(&all(), None, &break_glass, false, at(700)), Ok(all()));
        assert!(break_glass.expire(at(700)) && break_glass == BreakGlass::Off);
        // A second deletion starts the time again.
        let again = BreakGlass::of_annotation(None).deleted(at(650));
        assert_eq!(again.time_to_recreation(at(700)), Some(Duration::from_secs(550)));
    }
}
