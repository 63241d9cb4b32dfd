//! The write decisions of client-go 0.35's recorders, with an API server that accepts everything: converts
//! occurrences to a trace for `squelch replay`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::Dice;
use crate::correlator::Correlator;

/// Milliseconds since the start of the trace.
pub(crate) type Millis = u64;

pub(crate) const SECOND: Millis = 1000;
pub(crate) const MINUTE: Millis = 60 * SECOND;

/// Start of the traces, for the times in the Events.
const BEGIN: &str = "2026-03-02T08:00:00Z";

/// tools/events/event_broadcaster.go: refreshTime, finishTime.
const REFRESH: Millis = 30 * MINUTE;
const FINISH: Millis = 6 * MINUTE;

/// The recorder of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recorder {
    /// `tools/record`, through `v1`.
    Legacy,
    /// `tools/events`, through `events.k8s.io/v1`.
    New,
    /// None: the component creates an Event for each occurrence, through `v1`.
    Creates,
    /// That of the Java operator SDK 5.6: reads the Event, adds one, and writes it back, through `v1`.
    Adds,
}

/// A component with its recorder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Emitter {
    pub(crate) recorder: Recorder,
    pub(crate) user: String,
    pub(crate) component: String,
    /// The node of a legacy recorder, the instance of a new one.
    pub(crate) instance: String,
}

/// The object of an Event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) field_path: String,
}

/// An occurrence.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    pub(crate) at: Millis,
    pub(crate) by: Emitter,
    pub(crate) about: Object,
    pub(crate) event_type: &'static str,
    pub(crate) reason: &'static str,
    /// Only in the new API.
    pub(crate) action: &'static str,
    pub(crate) message: String,
}

/// A series of a new recorder: the Event as created, the count, and the time of the last occurrence.
struct Series {
    about: Occurrence,
    name: String,
    count: i64,
    last: Millis,
}

/// All recorders between the occurrences and the writes.
#[derive(Default)]
pub(crate) struct Clients {
    correlators: BTreeMap<Emitter, Correlator>,
    series: BTreeMap<(Emitter, String), Series>,
    stored: BTreeMap<(String, String), Value>,
    trace: String,
    names: u64,
    timers: Millis,
}

/// The trace of these occurrences.
pub(crate) fn trace(mut occurrences: Vec<Occurrence>) -> String {
    occurrences.sort_by_key(|occurrence| occurrence.at);
    let mut clients = Clients::default();
    for occurrence in &occurrences {
        clients.report(occurrence);
    }
    clients.trace
}

impl Clients {
    /// The lines that this occurrence causes.
    pub(crate) fn report(&mut self, occurrence: &Occurrence) -> &str {
        let before = self.trace.len();
        self.timers_until(occurrence.at);
        match occurrence.by.recorder {
            Recorder::Legacy => self.legacy(occurrence),
            Recorder::New => self.new_style(occurrence),
            Recorder::Creates => self.create(occurrence),
            Recorder::Adds => self.add(occurrence),
        }
        &self.trace[before..]
    }

    fn create(&mut self, occurrence: &Occurrence) {
        let name = self.name(occurrence);
        self.write_legacy(occurrence, &name, 1, &occurrence.message);
    }

    /// DefaultEventRecorder.java, DefaultEventSink.java: the name is a hash of the object and the message, and the count is
    /// the stored one plus one.
    fn add(&mut self, occurrence: &Occurrence) {
        let Occurrence { about, event_type, reason, message, .. } = occurrence;
        let name =
            format!("{}.{}", about.name, digest(&format!("{} {event_type} {reason} {message}", about.uid)));
        let stored = self.stored.get(&(about.namespace.clone(), name.clone()));
        let count = stored.map_or(0, |stored| stored["count"].as_i64().unwrap());
        self.write_legacy(occurrence, &name, count + 1, message);
    }

    /// tools/record: aggregate, count, and then apply the spam filter.
    fn legacy(&mut self, occurrence: &Occurrence) {
        let fresh = self.name(occurrence);
        let correlator = self.correlators.entry(occurrence.by.clone()).or_default();
        let (key, message) = correlator.aggregate(occurrence);
        let (count, name) = correlator.observed.entry(key).or_insert((0, fresh));
        *count += 1;
        let (count, name) = (*count, name.clone());
        if !correlator.spam_filter_admits(occurrence) {
            return;
        }
        self.write_legacy(occurrence, &name, count, &message);
    }

    fn write_legacy(&mut self, occurrence: &Occurrence, name: &str, count: i64, message: &str) {
        let place = (occurrence.about.namespace.clone(), name.to_owned());
        let now = seconds(occurrence.at);
        let old = self.stored.get(&place).cloned();
        let first = old.as_ref().map_or_else(|| json!(now), |old| old["firstTimestamp"].clone());
        let object = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": home(&occurrence.about)},
            "involvedObject": reference(&occurrence.about),
            "type": occurrence.event_type, "reason": occurrence.reason, "message": message,
            "source": {"component": occurrence.by.component, "host": occurrence.by.instance},
            "reportingComponent": occurrence.by.component, "reportingInstance": occurrence.by.instance,
            "firstTimestamp": first, "lastTimestamp": now, "count": count,
        });
        self.write(occurrence.at, &occurrence.by.user, place, &object);
    }

    /// tools/events: the first and the second are reported at once, later ones by the timers.
    fn new_style(&mut self, occurrence: &Occurrence) {
        // The key does not include the note.
        let key = (
            occurrence.by.clone(),
            format!("{:?} {} {}", occurrence.about, occurrence.event_type, occurrence.reason),
        );
        let known = self.series.get_mut(&key).map(|series| {
            series.count += 1;
            series.last = occurrence.at;
            series.count
        });
        match known {
            None => {
                let series = Series {
                    about: occurrence.clone(),
                    name: self.name(occurrence),
                    count: 1,
                    last: occurrence.at,
                };
                self.series.insert(key.clone(), series);
                self.record(occurrence.at, &key);
            }
            Some(2) => self.record(occurrence.at, &key),
            Some(_) => {}
        }
    }

    fn record(&mut self, at: Millis, key: &(Emitter, String)) {
        let Series { about: occurrence, name, count, last } = &self.series[key];
        let mut object = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": home(&occurrence.about)},
            "regarding": reference(&occurrence.about), "action": occurrence.action,
            "type": occurrence.event_type, "reason": occurrence.reason, "note": occurrence.message,
            "reportingController": occurrence.by.component, "reportingInstance": occurrence.by.instance,
            "eventTime": micros(occurrence.at),
        });
        if *count > 1 {
            object["series"] = json!({"count": count, "lastObservedTime": micros(*last)});
        }
        let place = (occurrence.about.namespace.clone(), name.clone());
        let user = occurrence.by.user.clone();
        self.write(at, &user, place, &object);
    }

    /// The timers of the new recorders, which all start with the trace.
    fn timers_until(&mut self, now: Millis) {
        while self.timers + FINISH <= now {
            self.timers += FINISH;
            let at = self.timers;
            let keys: Vec<_> = self.series.keys().cloned().collect();
            for key in keys {
                let (count, over) = (self.series[&key].count, self.series[&key].last + FINISH < at);
                if count > 1 && (over || at.is_multiple_of(REFRESH)) {
                    self.record(at, &key);
                }
                if over {
                    self.series.remove(&key);
                }
            }
        }
    }

    /// A PATCH if it is stored, else a CREATE (after a 404 if it is not the first).
    fn write(&mut self, at: Millis, user: &str, place: (String, String), object: &Value) {
        let old = self.stored.insert(place, object.clone());
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let seconds = format!("{}.{:03}", at / SECOND, at % SECOND);
        let _ = write!(
            self.trace,
            r#"{{"at": {seconds}, "operation": "{operation}", "user": "{user}", "object": {object}"#
        );
        if let Some(old) = old {
            let _ = write!(self.trace, r#", "oldObject": {old}"#);
        }
        self.trace.push_str("}\n");
    }

    /// tools/record/util: GenerateEventName.
    fn name(&mut self, occurrence: &Occurrence) -> String {
        self.names += 1;
        let nanos = moment(occurrence.at).as_nanosecond() + i128::from(self.names % 1_000_000);
        format!("{}.{nanos:x}", occurrence.about.name)
    }
}

/// 32 hexadecimal digits that depend on the text.
fn digest(text: &str) -> String {
    let mut dice = text.bytes().fold(Dice::new(0), |mut dice, byte| Dice::new(dice.next() ^ u64::from(byte)));
    format!("{:016x}{:016x}", dice.next(), dice.next())
}

fn moment(at: Millis) -> Timestamp {
    let begin: Timestamp = BEGIN.parse().unwrap();
    begin + SignedDuration::from_millis(i64::try_from(at).unwrap())
}

fn seconds(at: Millis) -> String {
    moment(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn micros(at: Millis) -> String {
    moment(at).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn reference(about: &Object) -> Value {
    let mut reference = json!({
        "apiVersion": about.api_version, "kind": about.kind, "namespace": about.namespace,
        "name": about.name, "uid": about.uid,
    });
    if !about.field_path.is_empty() {
        reference["fieldPath"] = json!(about.field_path);
    }
    reference
}

/// The namespace of an Event: client-go's recorders use `default` for an object without a namespace.
fn home(about: &Object) -> &str {
    if about.namespace.is_empty() { "default" } else { &about.namespace }
}
