//! What is in force, and who has taken the rules away: by the policies, by the proof, by a person. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::{Moment, sanitise};

use super::configuration::Reach;

/// The break glass on the configuration: as long as it is there, and whatever it says, the rules are away.
pub const DISARM_ANNOTATION: &str = "squelch.dev/disarm";

/// Who deletes the configuration has disarmed the webhook for so long.
pub(super) const DELETED_FOR: Duration = Duration::from_secs(600);

/// A person's reason is cut to so many characters.
const LONGEST_REASON: usize = 200;

/// The same of a sentence for the policies.
const LONGEST_SENTENCE: usize = 600;

/// What the policies are told before anything is known.
pub const NOT_YET: &str = "It is not proven yet that the API server reaches the webhook: Event writes pass.";

/// What they are told once squelch has taken the rules away to end.
pub const ENDED: &str =
    "squelch has ended, and no other replica was ready: Event writes pass until one decides.";

/// What a person wants, whatever the policies and the proof say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum BreakGlass {
    /// Nothing in particular.
    #[default]
    Whole,
    /// No rules, for this reason, until the annotation is removed.
    Annotated(String),
    /// No configuration until then, or until somebody puts it back.
    Deleted(Moment),
}

impl BreakGlass {
    /// The configuration stands there, with this annotation.
    pub(super) fn found(annotation: Option<&str>) -> Self {
        annotation.map_or(Self::Whole, |reason| Self::Annotated(told(reason, LONGEST_REASON)))
    }

    /// Somebody has deleted it. Looked at again it is still the same deletion.
    pub(super) fn missing(&self, now: Moment) -> Self {
        match self {
            Self::Deleted(until) => Self::Deleted(*until),
            Self::Whole | Self::Annotated(_) => Self::Deleted(now.plus(DELETED_FOR)),
        }
    }

    /// How long the configuration is still to be left away; `None` if it is to be there.
    pub(super) fn left_away(&self, now: Moment) -> Option<Duration> {
        let Self::Deleted(until) = self else { return None };
        Some(until.since(now)).filter(|left| !left.is_zero())
    }

    /// The time after a deletion is over; true once.
    pub(super) fn ends(&mut self, now: Moment) -> bool {
        let over = matches!(self, Self::Deleted(until) if *until <= now);
        if over {
            *self = Self::Whole;
        }
        over
    }
}

/// Somebody else's words, for a line: sanitised, and cut.
fn told(words: &str, longest: usize) -> String {
    words.chars().take(longest).map(sanitise).collect()
}

/// Why the webhook is asked about no write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unarmed {
    NoPolicy,
    /// With what became of the last proof.
    Unproven(String),
    Annotated(String),
    Deleted,
    /// By `--enforce=false`.
    Unenforced,
}

/// The rules that are to be in force, or why there are none.
pub(super) fn in_force(
    wanted: &Reach,
    unproven: Option<&str>,
    glass: &BreakGlass,
    enforce: bool,
    now: Moment,
) -> Result<Reach, Unarmed> {
    if glass.left_away(now).is_some() {
        return Err(Unarmed::Deleted);
    }
    if let BreakGlass::Annotated(reason) = glass {
        return Err(Unarmed::Annotated(reason.clone()));
    }
    if !enforce {
        return Err(Unarmed::Unenforced);
    }
    if *wanted == Reach::Nothing {
        return Err(Unarmed::NoPolicy);
    }
    unproven.map_or_else(|| Ok(wanted.clone()), |why| Err(Unarmed::Unproven(why.to_owned())))
}

impl Unarmed {
    /// It is for somebody to look after.
    pub(super) fn is_trouble(&self) -> bool {
        matches!(self, Self::Unproven(_))
    }

    /// It is what a person has asked for.
    pub(super) fn is_break_glass(&self) -> bool {
        matches!(self, Self::Annotated(_) | Self::Deleted | Self::Unenforced)
    }

    /// The same as another, whatever the words of the last proof, which may change each second.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Unproven(_), Self::Unproven(_))) || self == other
    }

    /// A sentence for the conditions of the policies.
    pub(super) fn to_policies(&self) -> Arc<str> {
        match self {
            // Who reads it has one, for which the rules are not written yet.
            Self::NoPolicy => NOT_YET.into(),
            _ => told(&self.to_string(), LONGEST_SENTENCE).into(),
        }
    }
}

impl fmt::Display for Unarmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy => {
                f.write_str("No policy governs any namespace: no Event write is sent to squelch.")
            }
            Self::Unproven(why) => {
                write!(
                    f,
                    "It is not proven that the API server reaches the webhook: {why}. Event writes pass."
                )
            }
            Self::Annotated(reason) => write!(
                f,
                "The annotation {DISARM_ANNOTATION} stands on the configuration (\"{reason}\"): Event writes pass \
                 until it is removed."
            ),
            Self::Deleted => write!(
                f,
                "Somebody deleted the configuration: Event writes pass, and it is written again {} minutes later, or by \
                 a squelch that is started meanwhile.",
                DELETED_FOR.as_secs() / 60
            ),
            Self::Unenforced => f.write_str(
                "squelch runs with --enforce=false (or SQUELCH_ENFORCE=false): Event writes pass until it is started \
                 without.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn the_rules_are_in_force_while_nothing_speaks_against_them() {
        let whole = BreakGlass::default();
        assert_eq!(in_force(&Reach::Everything, None, &whole, true, at(0)), Ok(Reach::Everything));
        assert_eq!(in_force(&Reach::Nothing, None, &whole, true, at(0)), Err(Unarmed::NoPolicy));
        let unproven = in_force(&Reach::Everything, Some("it hangs"), &whole, true, at(0)).unwrap_err();
        assert!(unproven.is_trouble() && unproven.to_string().contains("it hangs"));
    }

    #[test]
    fn the_annotation_counts_whatever_it_says_until_it_is_gone() {
        for reason in ["", "INC-7"] {
            let glass = BreakGlass::found(Some(reason));
            let unarmed = in_force(&Reach::Everything, None, &glass, true, at(0)).unwrap_err();
            assert!(unarmed.is_break_glass() && unarmed.to_string().contains(&format!("\"{reason}\"")));
            assert_eq!(glass.left_away(at(0)), None, "the entry of the proof stays");
        }
        assert_eq!(BreakGlass::found(None), BreakGlass::Whole);
        assert_eq!(BreakGlass::found(Some("a\n\u{1b}[1mb")), BreakGlass::Annotated("a  [1mb".to_owned()));
    }

    #[test]
    fn the_flag_counts_whether_there_is_a_policy_or_not_and_is_told_as_the_reason() {
        for wanted in [Reach::Everything, Reach::Nothing] {
            let unarmed = in_force(&wanted, Some("it hangs"), &BreakGlass::Whole, false, at(0)).unwrap_err();
            assert!(unarmed.is_break_glass() && !unarmed.is_trouble());
            assert!(unarmed.to_policies().contains("--enforce=false"), "{unarmed}");
        }
    }

    #[test]
    fn policies_are_told_a_short_and_harmless_sentence() {
        let foreign = format!("a\u{202e}{}", "x".repeat(10_000));
        for unarmed in
            [Unarmed::Unproven(foreign.clone()), Unarmed::Annotated(told(&foreign, LONGEST_REASON))]
        {
            let sentence = unarmed.to_policies();
            assert!(sentence.contains("a xxx") && sentence.chars().count() <= LONGEST_SENTENCE, "{sentence}");
        }
        assert_eq!(*Unarmed::NoPolicy.to_policies(), *NOT_YET);
        assert!(Unarmed::Unproven("a".into()).is_like(&Unarmed::Unproven("b".into())));
        assert!(!Unarmed::Annotated("a".into()).is_like(&Unarmed::Annotated("b".into())));
    }

    #[test]
    fn who_deletes_it_has_ten_minutes_from_then_on() {
        let glass = BreakGlass::Whole.missing(at(100));
        // It is looked for again and again.
        let mut glass = glass.missing(at(300)).missing(at(600));
        assert!(!glass.ends(at(699)));
        assert_eq!(glass.left_away(at(699)), Some(Duration::from_secs(1)));
        assert_eq!(in_force(&Reach::Everything, None, &glass, true, at(699)), Err(Unarmed::Deleted));
        assert_eq!(glass.left_away(at(700)), None);
        assert_eq!(in_force(&Reach::Everything, None, &glass, true, at(700)), Ok(Reach::Everything));
        assert!(glass.ends(at(700)) && glass == BreakGlass::Whole);
        // Put back and deleted again it is another ten.
        let again = BreakGlass::found(None).missing(at(650));
        assert_eq!(again.left_away(at(700)), Some(Duration::from_secs(550)));
    }
}
