use super::*;
use crate::testing::write;

#[test]
fn a_series_key_depends_on_exactly_its_fields() {
    let hasher = Hasher::new([1, 2]);
    let base = hasher.series(&write(), Masks::default());
    type Change = fn(&mut Observation<'static>);
    let with_count: [Change; 14] = [
        |w| w.user = "someone-else",
        |w| w.event.reporting_component = "c".into(),
        |w| w.event.reporting_instance = "i".into(),
        |w| w.event.regarding.api_version = "v2".into(),
        |w| w.event.regarding.kind = "Node".into(),
        |w| w.event.regarding.namespace = "else".into(),
        |w| w.event.regarding.name = "else".into(),
        |w| w.event.regarding.uid = "else".into(),
        |w| w.event.regarding.field_path = "else".into(),
        |w| w.event.event_type = "Normal".into(),
        |w| w.event.reason = "else".into(),
        |w| w.event.action = "else".into(),
        |w| w.event.related = Some(ObjectReference::default()),
        |w| w.event.message = "else".into(),
    ];
    for (at, change) in with_count.iter().enumerate() {
        let mut other = write();
        change(&mut other);
        assert_ne!(hasher.series(&other, Masks::default()), base, "field {at}");
    }
    let ignored: [Change; 4] = [
        |w| w.name = Some("another.name".into()),
        |w| w.value = 7,
        |w| w.event.first_timestamp = "2026-01-01T00:00:00Z".into(),
        |w| w.event.source_host = "not read beside a reporting component".into(),
    ];
    for (at, change) in ignored.iter().enumerate() {
        let mut other = write();
        change(&mut other);
        assert_eq!(hasher.series(&other, Masks::default()), base, "ignored {at}");
    }
}

#[test]
fn adjacent_fields_do_not_run_together() {
    let hasher = Hasher::new([1, 2]);
    let (mut one, mut other) = (write(), write());
    (one.event.regarding.name, one.event.regarding.uid) = ("ab".into(), "c".into());
    (other.event.regarding.name, other.event.regarding.uid) = ("a".into(), "bc".into());
    assert_ne!(hasher.series(&one, Masks::default()), hasher.series(&other, Masks::default()));
}

#[test]
fn client_side_aggregates_share_one_series_key() {
    let hasher = Hasher::new([1, 2]);
    let (mut one, mut other) = (write(), write());
    one.event.message = format!("{AGGREGATE_PREFIX}a").into();
    other.event.message = format!("{AGGREGATE_PREFIX}b").into();
    assert_eq!(hasher.series(&one, Masks::default()), hasher.series(&other, Masks::default()));
}
