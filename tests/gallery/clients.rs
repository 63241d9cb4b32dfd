//! The recorders of client-go 0.35 as far as they decide what is written, over an API server that takes everything:
//! from what happens to a trace for `squelch replay`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Milliseconds since the trace began.
pub(crate) type Millis = u64;

pub(crate) const SECOND: Millis = 1000;
pub(crate) const MINUTE: Millis = 60 * SECOND;

/// When the traces begin, for the times in the Events.
const BEGIN: &str = "2026-03-02T08:00:00Z";

/// tools/record/events_cache.go: defaultAggregateMaxEvents, defaultAggregateIntervalInSeconds.
const MAX_EVENTS: usize = 10;
const INTERVAL: Millis = 600 * SECOND;
/// The same file: defaultSpamBurst, defaultSpamQPS.
const BURST: u64 = 25;
const REFILL: Millis = 300 * SECOND;
/// tools/events/event_broadcaster.go: refreshTime, finishTime.
const REFRESH: Millis = 30 * MINUTE;
const FINISH: Millis = 6 * MINUTE;

/// Through which recorder a component tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recorder {
    /// `tools/record`, through `v1`.
    Legacy,
    /// `tools/events`, through `events.k8s.io/v1`.
    New,
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

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) field_path: String,
}

/// What happened.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    pub(crate) at: Millis,
    pub(crate) by: Emitter,
    pub(crate) about: Object,
    pub(crate) event_type: &'static str,
    pub(crate) reason: &'static str,
    /// Of the new API alone.
    pub(crate) action: &'static str,
    pub(crate) message: String,
}

/// What a legacy recorder remembers.
#[derive(Default)]
struct Correlator {
    groups: BTreeMap<String, (BTreeSet<String>, Millis)>,
    observed: BTreeMap<String, (i64, String)>,
    /// Tokens in milliseconds of refill, and when they were counted.
    buckets: BTreeMap<String, (u64, Millis)>,
}

/// A series of a new recorder: the Event as it was created, the count, and when it was last observed.
struct Series {
    about: Occurrence,
    name: String,
    count: i64,
    last: Millis,
}

/// Everything between what happens and the writes.
#[derive(Default)]
pub(crate) struct Clients {
    correlators: BTreeMap<Emitter, Correlator>,
    series: BTreeMap<(Emitter, String), Series>,
    stored: BTreeMap<(String, String), Value>,
    trace: String,
    names: u64,
    timers: Millis,
}

/// The trace of what happened.
pub(crate) fn trace(mut occurrences: Vec<Occurrence>) -> String {
    occurrences.sort_by_key(|occurrence| occurrence.at);
    let mut clients = Clients::default();
    for occurrence in &occurrences {
        clients.tell(occurrence);
    }
    clients.trace
}

impl Clients {
    /// The lines that are written now.
    pub(crate) fn tell(&mut self, occurrence: &Occurrence) -> &str {
        let before = self.trace.len();
        self.timers_until(occurrence.at);
        match occurrence.by.recorder {
            Recorder::Legacy => self.legacy(occurrence),
            Recorder::New => self.new_style(occurrence),
        }
        &self.trace[before..]
    }

    /// tools/record: aggregate, count, and only then ask the spam filter.
    fn legacy(&mut self, told: &Occurrence) {
        let fresh = self.name(told);
        let correlator = self.correlators.entry(told.by.clone()).or_default();
        let (key, message) = correlator.aggregate(told);
        let (count, name) = correlator.observed.entry(key).or_insert((0, fresh));
        *count += 1;
        let (count, name) = (*count, name.clone());
        if !correlator.may_tell(told) {
            return;
        }
        let place = (told.about.namespace.clone(), name.clone());
        let now = seconds(told.at);
        let old = self.stored.get(&place).cloned();
        let first = old.as_ref().map_or_else(|| json!(now), |old| old["firstTimestamp"].clone());
        let object = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": home(&told.about)},
            "involvedObject": reference(&told.about),
            "type": told.event_type, "reason": told.reason, "message": message,
            "source": {"component": told.by.component, "host": told.by.instance},
            "reportingComponent": told.by.component, "reportingInstance": told.by.instance,
            "firstTimestamp": first, "lastTimestamp": now, "count": count,
        });
        self.write(told.at, &told.by.user, place, &object);
    }

    /// tools/events: the first and the second are told at once, then only what the timers tell.
    fn new_style(&mut self, told: &Occurrence) {
        // The key holds no note.
        let key = (told.by.clone(), format!("{:?} {} {}", told.about, told.event_type, told.reason));
        let known = self.series.get_mut(&key).map(|series| {
            series.count += 1;
            series.last = told.at;
            series.count
        });
        match known {
            None => {
                let series = Series { about: told.clone(), name: self.name(told), count: 1, last: told.at };
                self.series.insert(key.clone(), series);
                self.record(told.at, &key);
            }
            Some(2) => self.record(told.at, &key),
            Some(_) => {}
        }
    }

    fn record(&mut self, at: Millis, key: &(Emitter, String)) {
        let Series { about: told, name, count, last } = &self.series[key];
        let mut object = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": home(&told.about)},
            "regarding": reference(&told.about), "action": told.action,
            "type": told.event_type, "reason": told.reason, "note": told.message,
            "reportingController": told.by.component, "reportingInstance": told.by.instance,
            "eventTime": micros(told.at),
        });
        if *count > 1 {
            object["series"] = json!({"count": count, "lastObservedTime": micros(*last)});
        }
        let place = (told.about.namespace.clone(), name.clone());
        let user = told.by.user.clone();
        self.write(at, &user, place, &object);
    }

    /// The timers of the new recorders, which all began with the trace.
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

    /// A PATCH where it is stored, else a CREATE (after a 404, where it is not the first).
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
    fn name(&mut self, told: &Occurrence) -> String {
        self.names += 1;
        let nanos = moment(told.at).as_nanosecond() + i128::from(self.names % 1_000_000);
        format!("{}.{nanos:x}", told.about.name)
    }
}

impl Correlator {
    /// The key under which it is counted, and its message.
    fn aggregate(&mut self, told: &Occurrence) -> (String, String) {
        let about = Object { field_path: String::new(), ..told.about.clone() };
        let key = format!("{about:?} {} {}", told.event_type, told.reason);
        let (messages, last) = self.groups.entry(key.clone()).or_default();
        if told.at - *last > INTERVAL {
            messages.clear();
        }
        *last = told.at;
        messages.insert(told.message.clone());
        if messages.len() < MAX_EVENTS {
            return (format!("{key} {} {}", told.about.field_path, told.message), told.message.clone());
        }
        // client-go takes any one out.
        messages.pop_first();
        (key, format!("(combined from similar events): {}", told.message))
    }

    fn may_tell(&mut self, told: &Occurrence) -> bool {
        let about = Object { field_path: String::new(), ..told.about.clone() };
        let full = BURST * REFILL;
        let (tokens, then) =
            self.buckets.entry(format!("{about:?} {}", told.event_type)).or_insert((full, told.at));
        *tokens = full.min(*tokens + (told.at - *then));
        *then = told.at;
        let may = *tokens >= REFILL;
        if may {
            *tokens -= REFILL;
        }
        may
    }
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

/// Where an Event is stored: client-go's recorders put one about an object without a namespace into `default`.
fn home(about: &Object) -> &str {
    if about.namespace.is_empty() { "default" } else { &about.namespace }
}
