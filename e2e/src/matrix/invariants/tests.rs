//! Each invariant is violated by one occurrence too many or too few.

use super::super::Cell;
use super::super::evidence::{Sent, Stored};
use super::*;
use crate::proxy::ReviewCounts;

/// A client that sent 10 under one name: 1 was admitted and 9 were compacted; all are stored.
fn series(client: Client, column: Column) -> Evidence {
    let name = "pod-0.1".to_owned();
    let status = Counters { received: 10, admitted: 1, compacted: 9, ..Counters::default() };
    Evidence {
        cell: Cell { client, row: Row::Series },
        column,
        sent: Sent { occurrences: 10, reckoned: 10, names: [(name.clone(), 10)].into(), ..Sent::default() },
        stored: Stored {
            names: [(name, 10)].into(),
            summaries: 0,
            objects: [("pod-0".to_owned(), 10)].into(),
        },
        status,
        status_before: Counters::default(),
        metrics: status,
        lost: 0,
        reviews: ReviewCounts::default(),
        undecided: 0,
    }
}

fn store(it: &mut Evidence, value: i64) {
    it.stored.names.values_mut().for_each(|stored| *stored = value);
    it.stored.objects.values_mut().for_each(|stored| *stored = value);
}

fn receive(it: &mut Evidence, received: i64) {
    let compacted = received - 1;
    it.status = Counters { received, admitted: 1, compacted, ..Counters::default() };
    it.metrics = it.status;
}

fn complaint(it: &Evidence) -> String {
    check(it).map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn exact_evidence_passes_in_every_column() {
    for column in Column::ALL {
        for client in Client::ALL {
            assert_eq!(complaint(&series(client, column)), "", "{column} {client}");
        }
    }
}

#[test]
fn without_faults_the_counts_are_exact() {
    for stored in [9, 11] {
        let mut it = series(Client::Legacy, Column::Quiet);
        store(&mut it, stored);
        assert!(complaint(&it).contains(&format!("stored {stored} is not within 10 and 10")));
    }
    let mut it = series(Client::Legacy, Column::Quiet);
    receive(&mut it, 9);
    assert!(complaint(&it).contains("received 9 is not within 10 and 10"));
}

#[test]
fn status_metrics_and_sum_must_agree() {
    let mut it = series(Client::Legacy, Column::Quiet);
    it.metrics.compacted = 8;
    assert!(complaint(&it).contains("the status has"));
    it.status.compacted = 8;
    assert!(complaint(&it).contains("do not add up"));
    let mut it = series(Client::Legacy, Column::Quiet);
    it.lost = 1;
    assert!(complaint(&it).contains("1 occurrences were lost"));
}

#[test]
fn cut_reviews_bound_the_difference() {
    // A CREATE that bypassed squelch is stored; one whose refusal was cut is stored twice.
    let mut it = series(Client::Creates, Column::Faults);
    receive(&mut it, 8);
    it.reviews = ReviewCounts { asked: 10, cut_before: 2, cut_after: 1, suppressed_in_vain: 1, own: 0 };
    store(&mut it, 11);
    assert_eq!(complaint(&it), "");
    store(&mut it, 12);
    assert!(complaint(&it).contains("stored 12 is not within 8 and 11"));
    receive(&mut it, 9);
    assert!(complaint(&it).contains("received 9 is not within 8 and 8"));
}

#[test]
fn undecided_writes_bound_the_difference() {
    // The Lease expired while the API server was restarted: 2 CREATEs were stored without a decision.
    let mut it = series(Client::Creates, Column::ApiServer);
    receive(&mut it, 8);
    assert!(complaint(&it).contains("received 8 is not within 10 and 10"));
    it.undecided = 2;
    assert_eq!(complaint(&it), "");
    store(&mut it, 11);
    assert!(complaint(&it).contains("stored 11 is not within 8 and 10"));
    // A decision that took too long: received, and stored.
    let mut it = series(Client::Creates, Column::Quiet);
    for (failed_open, is_often) in [(1, false), (2, true)] {
        let compacted = 9 - failed_open;
        it.status = Counters { received: 10, admitted: 1, compacted, failed_open, ..Counters::default() };
        it.metrics = it.status;
        it.undecided = failed_open;
        assert_eq!((complaint(&it).as_str(), failed_open_often(&it)), ("", is_often));
    }
}

#[test]
fn an_absolute_count_makes_each_name_exact() {
    let mut it = series(Client::Legacy, Column::Faults);
    receive(&mut it, 8);
    it.reviews = ReviewCounts { asked: 10, cut_before: 3, cut_after: 0, suppressed_in_vain: 0, own: 0 };
    assert_eq!(complaint(&it), "");
    store(&mut it, 11);
    assert!(complaint(&it).contains("stored, sent under these names"));
}

#[test]
fn after_restarts_only_suppressed_counts_of_stored_names_may_be_stored_twice() {
    let mut it = series(Client::Legacy, Column::Restarts);
    it.cell.row = Row::ByObject;
    it.stored.summaries = 2;
    assert!(complaint(&it).contains("stored 12 is not within 10 and 10"));
    it.sent.withheld.insert("pod-0.1".to_owned(), 2);
    assert_eq!(complaint(&it), "");
    it.sent.withheld.clear();
    it.sent.withheld.insert("pod-0.2".to_owned(), 2);
    assert!(complaint(&it).contains("stored 12 is not within 10 and 10"));
}

#[test]
fn a_client_reports_everything_and_logs_no_error() {
    let mut it = series(Client::Legacy, Column::Quiet);
    it.sent.occurrences = 11;
    it.sent.error_lines = vec!["Server rejected event".to_owned()];
    let complaint = complaint(&it);
    assert!(complaint.contains("untold 1") && complaint.contains("1 error lines, 0 allowed"));
}

#[test]
fn each_object_and_each_summary_is_checked() {
    // The sums match; the objects do not.
    let mut it = series(Client::Creates, Column::Quiet);
    it.sent.names = [("pod-0.1".to_owned(), 5), ("pod-1.1".to_owned(), 5)].into();
    assert!(complaint(&it).contains("of these objects"));
    let mut it = series(Client::Legacy, Column::Quiet);
    it.cell.row = Row::ByKind;
    it.stored.summaries = 1;
    assert!(complaint(&it).contains("summaries show 1 of 0 aggregated"));
}

#[test]
fn counts_merged_and_reported_again_are_stored_at_most_twice() {
    // 2 under one name: the first was merged, and the second reported both after the group had closed.
    let mut it = series(Client::New, Column::Quiet);
    it.cell.row = Row::ByObject;
    it.status = Counters { received: 10, admitted: 9, aggregated: 1, recovered: 1, ..Counters::default() };
    it.metrics = it.status;
    it.sent.withheld.insert("pod-0.1".to_owned(), 1);
    it.stored.summaries = 1;
    it.stored.objects.insert("pod-0".to_owned(), 11);
    assert_eq!(complaint(&it), "");
    it.stored.objects.insert("pod-0".to_owned(), 12);
    assert!(complaint(&it).contains("reported again of these objects"));
}

#[test]
fn kubes_recorder_repeats_a_refused_value_only_after_lost_reviews() {
    let mut it = series(Client::Kube, Column::Faults);
    (it.sent.occurrences, it.sent.refused_updates) = (11, 1);
    assert_eq!(complaint(&it), "");
    it.sent.occurrences = 12;
    assert!(complaint(&it).contains("untold 2 is not within 0 and 1"));
    let mut it = series(Client::Kube, Column::Quiet);
    (it.sent.occurrences, it.sent.refused_updates) = (11, 1);
    assert!(complaint(&it).contains("untold 1 is not within 0 and 0"));
}
