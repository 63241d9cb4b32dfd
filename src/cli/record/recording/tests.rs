use serde_json::json;

use super::*;

fn at(millis: u64) -> Moment {
    Moment::from_epoch(Duration::from_millis(60_000 + millis))
}

/// An Event as the API server stores it.
fn stored(name: &str, version: u64, count: i64) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{ "manager": "kubelet", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z" }],
        },
        "involvedObject": { "kind": "Pod", "namespace": "shop", "name": name, "uid": name },
        "reason": "BackOff", "type": "Warning", "message": "m", "count": count,
    })
}

fn page(version: u64, next: &str, items: &[Value]) -> EventPage {
    let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
    serde_json::from_value(json!({ "metadata": metadata, "items": items })).unwrap()
}

/// A line: seconds, operation, name, count, and the count of the oldObject.
type Read = (f64, String, String, i64, Option<i64>);

fn read(lines: &str) -> Vec<Read> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let (object, old) = (&line["object"], &line["oldObject"]);
        (
            line["at"].as_f64().unwrap(),
            line["operation"].as_str().unwrap().to_owned(),
            object["metadata"]["name"].as_str().unwrap().to_owned(),
            object["count"].as_i64().unwrap(),
            old.get("count").map(|count| count.as_i64().unwrap()),
        )
    };
    lines.lines().map(line).collect()
}

fn create(at: f64, name: &str, count: i64) -> Read {
    (at, "CREATE".to_owned(), name.to_owned(), count, None)
}

fn update(at: f64, name: &str, count: i64, old: i64) -> Read {
    (at, "UPDATE".to_owned(), name.to_owned(), count, Some(old))
}

/// A recording that has begun with these Events at version 100.
fn begun(events: LastSeen, items: &[Value]) -> Recording {
    let mut recording = Recording::with_events(events);
    assert!(recording.needs_list());
    recording.begin_list();
    assert_eq!(recording.page(page(100, "", items), at(0)), "");
    assert!(!recording.needs_list());
    recording.connected(at(0));
    recording
}

fn list(recording: &mut Recording, version: u64, items: &[Value], now: Moment) -> Vec<Read> {
    recording.begin_list();
    read(&recording.page(page(version, "", items), now))
}

#[test]
fn the_watch_is_written_and_the_first_list_is_not() {
    let mut recording = begun(LastSeen::default(), &[stored("a", 90, 3)]);
    assert_eq!(recording.version(), "100");
    let mut lines = recording.watched(WatchEvent::Modified(stored("a", 101, 4)), at(1_500));
    lines += &recording.watched(WatchEvent::Added(stored("b", 102, 1)), at(1_501));
    lines += &recording.watched(WatchEvent::Modified(stored("b", 103, 2)), at(2_000));
    assert_eq!(recording.version(), "103");
    lines += &recording.watched(WatchEvent::Deleted(stored("a", 104, 4)), at(3_000));
    assert_eq!(recording.version(), "104", "a deletion has a version of its own");
    lines += &recording.watched(WatchEvent::Added(stored("a", 105, 1)), at(3_000));
    let expected =
        [update(1.5, "a", 4, 3), create(1.501, "b", 1), update(2.0, "b", 2, 1), create(3.0, "a", 1)];
    assert_eq!(read(&lines), expected);
    assert!(!lines.contains("managedFields"));
    let counts = recording.counts(at(10_000));
    let expected = RecordingCounts {
        time: Duration::from_secs(10),
        at_beginning: 1,
        creates: 2,
        updates: 2,
        ..RecordingCounts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn a_bookmark_moves_the_version() {
    let mut recording = begun(LastSeen::default(), &[]);
    let bookmark = json!({ "type": "BOOKMARK", "object": {
        "kind": "Event", "apiVersion": "v1", "metadata": { "resourceVersion": "150" },
    } });
    assert_eq!(recording.watched(serde_json::from_value(bookmark).unwrap(), at(1)), "");
    assert_eq!(recording.version(), "150");
}

#[test]
fn a_list_of_several_pages_is_complete_with_the_last() {
    let mut recording = Recording::default();
    recording.begin_list();
    let first = page(100, "token", &[stored("a", 90, 1)]);
    assert_eq!(first.next(), "token");
    recording.page(first, at(0));
    assert!(recording.needs_list());
    // The token has expired: the list begins again.
    recording.begin_list();
    recording.page(page(200, "token", &[stored("a", 90, 1)]), at(100));
    recording.page(page(200, "", &[stored("b", 91, 1)]), at(200));
    assert!(!recording.needs_list());
    assert_eq!((recording.version(), recording.counts(at(200)).at_beginning), ("200", 2));
    let line = recording.watched(WatchEvent::Modified(stored("b", 201, 2)), at(450));
    assert_eq!(read(&line), [update(0.25, "b", 2, 1)], "the recording begins after the list");
}

#[test]
fn after_an_expired_version_the_list_shows_what_has_changed() {
    let items = ["same", "changed", "deleted", "recreated", "raised"].map(|name| stored(name, 90, 2));
    let mut recording = begun(LastSeen::default(), &items);
    recording.watched(WatchEvent::Added(stored("late", 101, 1)), at(4_000));
    recording.expired(at(5_000));
    assert!(recording.needs_list());
    let mut recreated = stored("recreated", 120, 5);
    recreated["metadata"]["uid"] = "another".into();
    let now = [
        stored("same", 90, 2),
        stored("changed", 110, 2),
        recreated,
        stored("raised", 111, 9),
        stored("late", 101, 1),
        stored("new", 112, 3),
    ];
    let lines = list(&mut recording, 130, &now, at(10_000));
    let expected = [
        update(10.0, "changed", 2, 2),
        create(10.0, "recreated", 5),
        update(10.0, "raised", 9, 2),
        create(10.0, "new", 3),
    ];
    assert_eq!(lines, expected);
    assert_eq!(recording.version(), "130");
    recording.connected(at(10_500));
    let counts = recording.counts(at(20_000));
    // From the last event of the watch to the list. Occurrences: 0, 5, 7 and 3.
    assert_eq!((counts.gaps, counts.gap_time), (1, Duration::from_secs(6)));
    assert_eq!((counts.gap_writes, counts.gap_occurrences), (4, 15));
    assert_eq!((counts.creates, counts.updates), (3, 2));
    assert_eq!((counts.reopened, counts.reopening), (1, Duration::from_millis(500)), "without the gap");
    let again = recording.watched(WatchEvent::Modified(stored("deleted", 131, 3)), at(21_000));
    assert_eq!((again.as_str(), recording.counts(at(21_000)).without_previous), ("", 1), "it was deleted");
}

#[test]
fn a_list_that_breaks_off_in_a_gap_loses_nothing() {
    let mut recording = begun(LastSeen::default(), &[stored("a", 90, 1), stored("b", 90, 1)]);
    recording.expired(at(1_000));
    recording.begin_list();
    let first = recording.page(page(200, "token", &[stored("a", 150, 2)]), at(2_000));
    recording.begin_list();
    let mut lines = recording.page(page(300, "token", &[stored("a", 250, 4)]), at(3_000));
    lines += &recording.page(page(300, "", &[stored("b", 251, 2)]), at(3_100));
    assert_eq!(
        read(&(first + &lines)),
        [update(2.0, "a", 2, 1), update(3.0, "a", 4, 2), update(3.1, "b", 2, 1)]
    );
    let counts = recording.counts(at(4_000));
    assert_eq!((counts.gaps, counts.gap_writes, counts.gap_occurrences), (1, 3, 4));
}

#[test]
fn an_update_of_an_evicted_event_is_counted_and_not_written() {
    let size = SeenEvent::new(stored("a", 90, 1)).json.len();
    let mut recording =
        begun(LastSeen::with_limit(2 * size + 20), &["a", "b", "c"].map(|name| stored(name, 90, 1)));
    // "a" was evicted by "c", and now evicts "b".
    assert_eq!(recording.watched(WatchEvent::Modified(stored("a", 101, 2)), at(1_000)), "");
    assert_eq!(recording.counts(at(1_000)).without_previous, 1);
    let line = recording.watched(WatchEvent::Modified(stored("a", 102, 3)), at(2_000));
    assert_eq!(read(&line), [update(2.0, "a", 3, 2)], "from then on it is known again");

    recording.expired(at(3_000));
    let mut new = stored("d", 110, 1);
    new["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z".into();
    let mut old = stored("b", 111, 2);
    old["metadata"]["creationTimestamp"] = "2025-12-31T23:59:59Z".into();
    assert_eq!(list(&mut recording, 120, &[old, new], at(4_000)), [create(4.0, "d", 1)]);
    assert_eq!(recording.counts(at(4_000)).without_previous, 2);
}

#[test]
fn silent_watches_lead_to_a_list_and_to_a_gap_only_if_it_shows_a_change() {
    let mut recording = begun(LastSeen::default(), &[stored("a", 90, 1)]);
    for watch in 1..=3 {
        recording.silent(at(watch * 90_000));
        assert_eq!(recording.needs_list(), watch == 3);
    }
    assert_eq!(list(&mut recording, 500, &[stored("a", 90, 1)], at(271_000)), []);
    recording.connected(at(271_000));
    assert_eq!(recording.counts(at(271_000)).gaps, 0);
    // etcd was restored from a backup.
    (0..3).for_each(|_| recording.silent(at(540_000)));
    assert_eq!(list(&mut recording, 80, &[stored("a", 70, 3)], at(541_000)), [update(541.0, "a", 3, 1)]);
    let counts = recording.counts(at(541_000));
    assert_eq!((counts.gaps, counts.gap_time), (1, Duration::from_secs(270)));
    assert_eq!(recording.version(), "80");
    recording.silent(at(600_000));
    recording.watched(WatchEvent::Added(stored("b", 81, 1)), at(601_000));
    (0..2).for_each(|_| recording.silent(at(700_000)));
    assert!(!recording.needs_list(), "an event came in between");
}

#[test]
fn a_watch_that_is_opened_again_is_no_gap() {
    let mut recording = begun(LastSeen::default(), &[]);
    recording.closed(at(1_000));
    recording.disconnected(at(1_800));
    recording.connected(at(3_000));
    let counts = recording.counts(at(4_000));
    assert_eq!((counts.reopened, counts.reopening), (1, Duration::from_secs(2)));
    assert_eq!((counts.gaps, counts.missing_at_end), (0, Duration::ZERO));
}

#[test]
fn the_end_without_a_watch_is_missing() {
    let mut recording = begun(LastSeen::default(), &[]);
    recording.disconnected(at(5_000));
    assert_eq!(recording.counts(at(9_000)).missing_at_end, Duration::from_secs(4));
    recording.expired(at(6_000));
    let counts = recording.counts(at(9_000));
    assert_eq!(
        (counts.gaps, counts.gap_time, counts.missing_at_end),
        (1, Duration::from_secs(9), Duration::from_secs(9))
    );
}

#[test]
fn writes_are_counted_by_api_and_by_field_manager() {
    let mut recording = begun(LastSeen::default(), &[]);
    let mut by_squelch = stored("a", 101, 1);
    by_squelch["metadata"]["managedFields"][0]["manager"] = "squelch".into();
    let mut new = stored("b", 102, 1);
    new["metadata"]["managedFields"][0]["apiVersion"] = "events.k8s.io/v1".into();
    let mut unknown = stored("c", 103, 1);
    unknown["metadata"]["managedFields"] = json!([]);
    let lines: String =
        [by_squelch, new, unknown].map(|event| recording.watched(WatchEvent::Added(event), at(1))).concat();
    let counts = recording.counts(at(1));
    assert_eq!((counts.by_squelch, counts.through_new_api, counts.of_assumed_api), (1, 1, 1));
    let versions = ["v1", "events.k8s.io/v1", "v1"].map(|version| format!(r#""apiVersion":"{version}""#));
    assert!(lines.lines().zip(&versions).all(|(line, version)| line.contains(version)), "{lines}");
    assert_eq!(recording.last_namespace(), "shop");
}
