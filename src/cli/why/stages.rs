//! What the stages of a policy do with a write, in one sentence each. Pure.

use std::time::Duration;

use serde::Serialize;
use squelch_engine::{
    AggregationRules, BucketRules, GroupBy, Mode, Per, Rules, SeriesRules, SpamFilterRules, WarningPolicy,
};

use super::facts::printable;
use crate::api::EventType;
use crate::policy::{Certainty, Compiled, KnownFields, PartialMatch};

/// A field of a policy, and what it does with a write about the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageEffect {
    /// Name of the field in the spec.
    pub field: &'static str,
    /// Its effect.
    pub effect: String,
}

/// Returns the effects of a policy on the writes with these fields that it governs.
pub(super) fn effects(compiled: &Compiled, known: &KnownFields<'_>) -> Vec<StageEffect> {
    let Rules { mode, warning_policy, normalize, series, aggregation, spam_filter, budget, .. } =
        &compiled.rules;
    let disabled = || "Disabled.".to_owned();
    let exempts = compiled.exempts_known(known);
    let effects = [
        ("mode", mode_effect(*mode)),
        ("warningPolicy", warnings(*warning_policy)),
        ("exempt", exempt(&exempts)),
        ("mute", mute(&compiled.mutes_known(known), exempts.certainty, *warning_policy, known.event_type)),
        ("series", series.map_or_else(disabled, |series| compacted(series, normalize.is_empty()))),
        ("aggregation", aggregation.map_or_else(disabled, aggregated)),
        ("spamFilter", spam_filter.map_or_else(disabled, filtered)),
        ("budget", budget.map_or_else(disabled, throttled)),
    ];
    effects.map(|(field, effect)| StageEffect { field, effect }).into()
}

/// The first clauses of a list, for one line.
pub(super) fn clauses_text(clauses: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = clauses.iter().take(SHOWN).map(|clause| printable(clause)).collect::<Vec<_>>().join("; ");
    match clauses.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; {more} more"),
    }
}

fn mode_effect(mode: Mode) -> String {
    match mode {
        Mode::Enforce => "Enforce: what the policy suppresses is not stored.",
        Mode::Observe => "Observe: squelch counts what the policy would suppress, and every write is stored.",
    }
    .to_owned()
}

fn warnings(policy: WarningPolicy) -> String {
    match policy {
        WarningPolicy::NeverDrop => "NeverDrop: mute, spamFilter and budget drop no Warning.",
        WarningPolicy::Limit => "Limit: mute, spamFilter and budget drop Warnings like Normal Events.",
    }
    .to_owned()
}

fn exempt(PartialMatch { certainty, clauses }: &PartialMatch) -> String {
    match certainty {
        Certainty::Always => "Every such write is stored as it is.".to_owned(),
        Certainty::Sometimes => {
            format!("Writes that match an entry are stored as they are: {}.", clauses_text(clauses))
        }
        Certainty::Never => "No such write is exempt.".to_owned(),
    }
}

fn mute(
    PartialMatch { certainty, clauses }: &PartialMatch,
    exempts: Certainty,
    warnings: WarningPolicy,
    event_type: Option<EventType>,
) -> String {
    let which = match (warnings, event_type) {
        (WarningPolicy::NeverDrop, Some(EventType::Warning)) => {
            return "No such write is muted: Warnings are not.".to_owned();
        }
        (WarningPolicy::NeverDrop, None) => "of type Normal ",
        _ => "",
    };
    // `exempt` precedes `mute`.
    let unless = if exempts == Certainty::Sometimes { "that is not exempt " } else { "" };
    match certainty {
        Certainty::Always | Certainty::Sometimes if exempts == Certainty::Always => {
            "No such write is muted: every one is exempt.".to_owned()
        }
        Certainty::Always => format!("Every such write {which}{unless}is dropped (muted)."),
        Certainty::Sometimes => {
            format!("Writes {which}that match an entry are dropped (muted): {}.", clauses_text(clauses))
        }
        Certainty::Never => "No such write is muted.".to_owned(),
    }
}

fn compacted(SeriesRules { idle_timeout, heartbeat_interval }: SeriesRules, exact: bool) -> String {
    let message = if exact { "message" } else { "message as normalize masks it" };
    format!(
        "Repeats (same emitter, object, type, reason, action and {message}) are merged into one stored Event. Its count is \
         at most {} old. After {} without a repeat, the next one is stored as a new Event.",
        duration(heartbeat_interval),
        duration(idle_timeout)
    )
}

fn aggregated(AggregationRules { max_events, idle_timeout, group_by }: AggregationRules) -> String {
    let (different, of, place) = match group_by {
        GroupBy::Object => {
            ("messages", "one emitter about the object, with one type and reason,", "a summary")
        }
        GroupBy::Kind => (
            "objects",
            "one kind, with one component, type and reason,",
            "a summary, which is an Event about one of these objects",
        ),
    };
    let idle = duration(idle_timeout);
    match max_events {
        0 | 1 => format!(
            "Of {of} the first Event is stored. Every later one is merged into {place}, until {idle} pass without one."
        ),
        _ => format!(
            "The first {} different {different} of {of} are stored. Others are merged into {place}, until {idle} pass without \
             one.",
            max_events - 1
        ),
    }
}

fn filtered(SpamFilterRules { bucket, per }: SpamFilterRules) -> String {
    let Per { emitter, object, event_type, reason } = per;
    let parts = [(emitter, "emitter"), (object, "object"), (event_type, "type"), (reason, "reason")];
    let parts: Vec<_> = parts.into_iter().filter(|(has, _)| *has).map(|(_, part)| part).collect();
    format!("For each {}, {} are dropped (filtered).", parts.join(", "), bucket_text(bucket))
}

fn throttled(bucket: BucketRules) -> String {
    format!(
        "Of all that the policy governs in the namespace, {} are dropped (throttled).",
        bucket_text(bucket)
    )
}

fn bucket_text(BucketRules { burst, refill_interval }: BucketRules) -> String {
    format!("writes beyond a burst of {burst} and then one every {}", duration(refill_interval))
}

fn duration(duration: Duration) -> String {
    jiff::SignedDuration::try_from(duration)
        .map_or_else(|_| format!("{duration:?}"), |duration| format!("{duration:#}"))
}
