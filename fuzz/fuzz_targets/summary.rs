//! The Events that squelch writes after merges pass the validation of the API server.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use squelch::flush::fuzzing::objections;
use squelch_engine::{
    AggregationRules, Api, Engine, EventView, FlushPlan, Governing, GroupBy, Masks, Mode, Moment,
    ObjectReference, Observation, Operation, PolicyId, Rejection, Rules, SeriesRules, Settings, StoredEvent,
    Treatment, WarningPolicy,
};

/// An Event as in a review.
#[derive(Arbitrary, Debug)]
struct Hostile {
    namespace: u8,
    of: u8,
    regarding: [String; 5],
    related: Option<[String; 5]>,
    words: [String; 8],
    times: [Time; 2],
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    events_api: bool,
    kind: bool,
    summed_up: bool,
    occurred_at: i64,
}

#[derive(Arbitrary, Debug)]
enum Time {
    None,
    Seconds(i64),
    Odd(String),
}

fuzz_target!(|hostile: Hostile| {
    let settings =
        Settings { seed: [3, 4], max_series: 64, max_pending_series: 16, began: Timestamp::UNIX_EPOCH };
    let (engine, now, rules) =
        (Engine::new(settings), Moment::from_epoch(Duration::from_secs(1)), hostile.rules());
    let (labels, annotations) = (json_map(&hostile.labels), json_map(&hostile.annotations));
    let times = hostile.times.each_ref().map(Time::text);
    for name in ["e.1", "e.2"] {
        let mut write = hostile.write(&labels, &annotations, &times);
        write.name = Some(name.into());
        engine.decide(Some(Governing { rules: &rules, treatment: Treatment::Stages }), &write, now);
    }
    let later = now.plus(Duration::from_secs(3));
    for order in engine.tick(later, 10) {
        if !hostile.summed_up {
            // Only an Event that was read is created again.
            engine.plan(&order, Some(StoredEvent::with_count(1)), later);
        }
        if let FlushPlan::Create { value, occurred_at, content, .. } = engine.plan(&order, None, later) {
            let found = objections(&order.namespace, &order.name, &content, value, occurred_at);
            assert!(found.is_empty(), "{found:?}");
        }
    }
});

impl Hostile {
    fn rules(&self) -> Rules {
        let group_by = if self.kind { GroupBy::Kind } else { GroupBy::Object };
        let aggregation =
            AggregationRules { max_events: 1, idle_timeout: Duration::from_secs(600), group_by };
        Rules {
            policy: PolicyId { display: "shop/p".into(), uid: "u".into() },
            mode: Mode::Enforce,
            warning_policy: WarningPolicy::Limit,
            normalize: Masks::default(),
            max_message_bytes: None,
            // Without series the second write is aggregated.
            series: (!self.summed_up).then_some(SeriesRules {
                idle_timeout: Duration::from_secs(360),
                heartbeat_interval: Duration::from_secs(1800),
            }),
            aggregation: self.summed_up.then_some(aggregation),
            spam_filter: None,
            budget: None,
            rejection: Rejection::AlreadyExists,
            export: squelch_engine::Exported::None,
        }
    }

    fn write<'a>(&'a self, labels: &'a str, annotations: &'a str, times: &'a [String; 2]) -> Observation<'a> {
        let namespaces = ["shop", "default", "kube-system"];
        let namespace = namespaces[usize::from(self.namespace) % 3];
        let of = ["", "shop", "default", "kube-system", "other"][usize::from(self.of) % 5];
        let [event_type, reason, action, message, component, instance, source, host] =
            self.words.each_ref().map(String::as_str);
        Observation {
            operation: Operation::Create,
            api: if self.events_api { Api::Events } else { Api::Core },
            user: "u",
            own: false,
            dry_run: false,
            namespace,
            name: None,
            generate_name: "".into(),
            event: EventView {
                regarding: reference(&self.regarding, of),
                related: self.related.as_ref().map(|related| reference(related, of)),
                event_type: event_type.into(),
                reason: reason.into(),
                action: action.into(),
                message: message.into(),
                reporting_component: component.into(),
                reporting_instance: instance.into(),
                source_component: source.into(),
                source_host: host.into(),
                first_timestamp: (&times[0]).into(),
                event_time: (&times[1]).into(),
                labels,
                annotations,
            },
            value: 1,
            old_value: 0,
            has_series: false,
            edited: false,
            unchanged: false,
            stale: false,
            first_seen: None,
            last_observed: None,
            occurred_at: moment(self.occurred_at),
        }
    }
}

impl Time {
    fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Seconds(seconds) => moment(*seconds).to_string(),
            Self::Odd(text) => text.clone(),
        }
    }
}

fn moment(seconds: i64) -> Timestamp {
    let seconds = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(seconds).expect("within bounds")
}

fn reference<'a>(
    [api_version, kind, name, uid, field_path]: &'a [String; 5],
    namespace: &'a str,
) -> ObjectReference<'a> {
    ObjectReference {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
        field_path: field_path.into(),
    }
}

fn json_map(entries: &[(String, String)]) -> String {
    let map: serde_json::Map<_, _> = entries.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    json!(map).to_string()
}
