//! The verdict of a standby replica, which has no state and counts nothing.

use crate::decide::pipeline::{ClientCount, lowers, refusal};
use crate::{Api, Governing, Mode, Observation, Stage, Treatment, Verdict};

/// Lets every write pass uncounted, except an UPDATE that would lower a count with merged occurrences. That one
/// gets the answer of an engine that does not know its Event.
pub fn stand_by(governing: Option<Governing<'_>>, write: &Observation<'_>) -> Verdict {
    let mut verdict = Verdict::passed(Stage::Standby);
    let passes = write.own || write.dry_run || write.edited || write.stale || !lowers(write);
    let Some(Governing { rules, treatment }) = governing.filter(|_| !passes) else { return verdict };
    if treatment != Treatment::Exempt && rules.series.is_some() && rules.mode == Mode::Enforce {
        let is_refresh = write.api == Api::Events && !write.begins_at_one();
        let client = if is_refresh { ClientCount::Collected } else { ClientCount::Own };
        verdict.answer = refusal(rules, write, client);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, by, engine, rules, update, write};
    use crate::{Answer, Disposition, Rules};

    #[test]
    fn a_standby_answers_like_an_empty_draining_engine() {
        let rules = rules();
        let observing = Rules { mode: Mode::Observe, ..rules.clone() };
        let unfolded = Rules { series: None, ..rules.clone() };
        let through_events =
            |write: Observation<'static>| Observation { api: Api::Events, has_series: true, ..write };
        for write in [
            write(),
            update(3, 8),
            update(9, 8),
            through_events(update(3, 8)),
            through_events(update(1, 8)),
            through_events(update(9, 8)),
            Observation { edited: true, ..update(3, 8) },
            Observation { stale: true, ..update(3, 8) },
            Observation { own: true, ..update(3, 8) },
            Observation { dry_run: true, ..update(3, 8) },
        ] {
            for rules in [&rules, &observing, &unfolded] {
                for treatment in [Treatment::Stages, Treatment::Exempt, Treatment::Mute] {
                    let governing = Some(Governing { rules, treatment });
                    let draining = engine();
                    draining.drain();
                    let expected = draining.decide(governing, &write, at(1));
                    let verdict = stand_by(governing, &write);
                    assert_eq!(verdict.answer, expected.answer, "{write:?} under {rules:?}, {treatment:?}");
                    assert_eq!((verdict.disposition, verdict.occurrences), (None, 0));
                }
            }
            assert_eq!(stand_by(None, &write).answer, Answer::Allow);
        }
    }

    #[test]
    fn an_event_from_before_the_engine_became_active_carries_one_occurrence() {
        let (engine, rules) = (engine(), rules());
        let began = jiff::Timestamp::from_second(1_000).unwrap();
        let first =
            Observation { value: 5, first_seen: Some(jiff::Timestamp::from_second(999).unwrap()), ..write() };
        engine.begin(began);
        let verdict = engine.decide(by(&rules), &first, at(1));
        assert_eq!((verdict.disposition, verdict.occurrences), (Some(Disposition::Admitted), 1));
    }
}
