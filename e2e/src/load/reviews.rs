//! The reviews of the load: recorded ones of both Event APIs with a few changed bytes.
//!
//! A server has many live series, a hundred per namespace. All of few, or a tenth of many, repeat. Consecutive
//! reviews are about series that are far apart in memory.

use bytes::Bytes;

/// Series per namespace.
const PER_NAMESPACE: usize = 100;

/// Above this number of series, one in [`REPEATED`] repeats: more cannot have pending occurrences.
const FEW: usize = 100_000;
const REPEATED: usize = 10;

/// Step from one series to the next. It is coprime to powers of ten, so that every series is visited.
const STRIDE: u64 = 618_033_989;

/// The stored count of every series, so high that no repeat doubles it, and of constant length.
const STORED: u64 = 1_000_000_000;

/// The kind of a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// core/v1: a CREATE under a new name.
    CoreCreate,
    /// core/v1: an UPDATE with a raised count.
    CoreUpdate,
    /// events.k8s.io/v1: a CREATE under a new name.
    EventsCreate,
    /// events.k8s.io/v1: an UPDATE with a raised series.
    EventsUpdate,
}

/// All kinds, used in turn.
pub const KINDS: [Kind; 4] = [Kind::CoreCreate, Kind::CoreUpdate, Kind::EventsCreate, Kind::EventsUpdate];

/// All reviews for a server with this number of live series.
#[derive(Debug)]
pub struct Reviews {
    series: usize,
    repeats: [Template; 4],
    openings: [Template; 4],
}

impl Reviews {
    /// For `series` live series, a multiple of 1,000.
    pub fn new(series: usize) -> Self {
        Self { series, repeats: KINDS.map(repeat), openings: KINDS.map(opening) }
    }

    /// Number of namespaces, `team-00000` and up.
    pub fn namespaces(&self) -> usize {
        self.series.div_ceil(PER_NAMESPACE)
    }

    /// Number of series.
    pub fn series(&self) -> usize {
        self.series
    }

    /// Number of repeated series.
    pub fn repeated(&self) -> usize {
        if self.series > FEW { self.series / REPEATED } else { self.series }
    }

    /// Length of the repeats in bytes.
    pub fn lengths(&self) -> [(Kind, usize); 4] {
        let mut at = self.repeats.iter();
        KINDS.map(|kind| (kind, at.next().map_or(0, |template| template.text.len())))
    }

    /// The CREATE that opens the series of this number.
    pub fn opening(&self, series: u64) -> Bytes {
        let kind = (series % 4) as usize;
        self.openings[kind].written(&Values { series, turn: series, name: 0, count: STORED })
    }

    /// The repeat of this number: each reports a new occurrence.
    pub fn repeat(&self, turn: u64) -> Bytes {
        let (kind, turn_of_kind) = ((turn % 4) as usize, turn / 4);
        let of_kind = self.repeated() as u64 / 4;
        let spread = (self.series / self.repeated()) as u64;
        let series = turn_of_kind * STRIDE % of_kind * spread * 4 + kind as u64;
        let count = STORED + 1 + turn_of_kind / of_kind;
        let name = if matches!(KINDS[kind], Kind::CoreCreate | Kind::EventsCreate) { turn + 1 } else { 0 };
        self.repeats[kind].written(&Values { series, turn, name, count })
    }
}

/// The values that differ between two reviews of a kind.
struct Values {
    series: u64,
    turn: u64,
    name: u64,
    count: u64,
}

/// The bytes of a review, and the positions of its values.
#[derive(Debug)]
struct Template {
    text: String,
    series: Vec<usize>,
    namespace: Vec<usize>,
    name: Vec<usize>,
    turn: Vec<usize>,
    count: Vec<usize>,
}

// Placeholders for digits, of the final length.
const SERIES: &str = "#series#";
const NAMESPACE: &str = "#team";
const NAME: &str = "####name####";
const TURN: &str = "####turn####";
const COUNT: &str = "##count###";

impl Template {
    fn new(text: String) -> Self {
        let places = |what: &str| text.match_indices(what).map(|(at, _)| at).collect();
        Self {
            series: places(SERIES),
            namespace: places(NAMESPACE),
            name: places(NAME),
            turn: places(TURN),
            count: places(COUNT),
            text,
        }
    }

    fn written(&self, values: &Values) -> Bytes {
        let mut bytes = self.text.as_bytes().to_vec();
        put::<8>(&mut bytes, &self.series, &digits(values.series));
        put::<5>(&mut bytes, &self.namespace, &digits(values.series / PER_NAMESPACE as u64));
        put::<12>(&mut bytes, &self.name, &digits(values.name));
        put::<12>(&mut bytes, &self.turn, &digits(values.turn));
        put::<10>(&mut bytes, &self.count, &digits(values.count));
        bytes.into()
    }
}

fn put<const LENGTH: usize>(bytes: &mut [u8], places: &[usize], digits: &[u8; LENGTH]) {
    for &at in places {
        bytes[at..at + LENGTH].copy_from_slice(digits);
    }
}

/// The last digits of a number.
fn digits<const LENGTH: usize>(mut number: u64) -> [u8; LENGTH] {
    let mut digits = [b'0'; LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// A recorded review with another object, namespace, name and uid.
fn recorded(text: &str, object: &str, uid: &str, request: &str) -> String {
    let text = replaced(text, &format!("{object}.187a2b3c"), &format!("{object}-{SERIES}.187a"));
    // The rest of the Event's name is eight more digits.
    let text = after(&text, &format!("{object}-{SERIES}.187a"), 8, NAME);
    let text = text.replace(&format!("\"name\":\"{object}\""), &format!("\"name\":\"{object}-{SERIES}\""));
    let text = text.replace(&format!("pod {object}_"), &format!("pod {object}-{SERIES}_"));
    let text = replaced(&text, uid, &format!("{}{SERIES}", &uid[..uid.len() - SERIES.len()]));
    let text = replaced(&text, request, &format!("{}{TURN}", &request[..request.len() - TURN.len()]));
    replaced(&text, "\"namespace\":\"shop\"", &format!("\"namespace\":\"team-{NAMESPACE}\""))
}

fn core(text: &str, request: &str) -> String {
    recorded(text, "web-7d4b9c6f5-x2x9k", "5b0f5d0e-94a6-4a58-9a0f-5f1f2d7c3b11", request)
}

fn events(text: &str, request: &str) -> String {
    recorded(text, "orders", "1d2c3b4a-5f6e-4d7c-8b9a-0a1b2c3d4e5f", request)
}

fn core_create() -> String {
    let text = include_str!("../../../src/webhook/testdata/core_create.json");
    // A kubelet quotes the answer to a probe.
    let answer = "upstream request timeout; connection pool exhausted; ".repeat(12);
    let text = replaced(text, "\"message\":\"", &format!("\"message\":\"{answer}"));
    core(&text, "705ab4f5-6393-11e8-b7cc-42010a800002")
}

fn events_create() -> String {
    let text = include_str!("../../../src/webhook/testdata/events_create.json");
    events(text, "1c9e6a4d-0a0f-4f4c-8f2e-7a5d3b1c0e9f")
}

fn repeat(kind: Kind) -> Template {
    Template::new(match kind {
        Kind::CoreCreate => core_create(),
        Kind::CoreUpdate => {
            let text = include_str!("../../../src/webhook/testdata/core_update.json");
            let text = replaced(text, "\"count\":1,", &format!("\"count\":{STORED},"));
            let text = replaced(&text, "\"count\":2,", &format!("\"count\":{COUNT},"));
            core(&text, "9d0cf6a1-1b7c-4c41-8f0a-4b1f0e6d2c3a")
        }
        Kind::EventsCreate => events_create(),
        Kind::EventsUpdate => {
            let text = include_str!("../../../src/webhook/testdata/events_update.json");
            let text = replaced(text, "\"count\":2,", &format!("\"count\":{COUNT},"));
            let text = replaced(&text, "},\"dryRun\"", &format!("{},\"dryRun\"", series(STORED)));
            events(&text, "a3f1d2c4-b5e6-4788-99aa-bbccddeeff00")
        }
    })
}

/// The CREATE that opens a series with the stored count.
fn opening(kind: Kind) -> Template {
    Template::new(match kind {
        Kind::CoreCreate => replaced(&core_create(), "\"count\":1,", &format!("\"count\":{STORED},")),
        // Without the quoted answer, as its repeats.
        Kind::CoreUpdate => {
            let text = include_str!("../../../src/webhook/testdata/core_create.json");
            let text = replaced(text, "\"count\":1,", &format!("\"count\":{STORED},"));
            core(&text, "705ab4f5-6393-11e8-b7cc-42010a800002")
        }
        Kind::EventsCreate | Kind::EventsUpdate => {
            replaced(&events_create(), "},\"oldObject\"", &format!("{},\"oldObject\"", series(STORED)))
        }
    })
}

/// The end of an Event with a series.
fn series(count: u64) -> String {
    format!(r#","series":{{"count":{count},"lastObservedTime":"2026-11-21T08:54:04.654321Z"}}}}"#)
}

/// `text` with its single occurrence of `from` replaced.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

/// `text` with the `length` bytes after each `mark` replaced.
fn after(text: &str, mark: &str, length: usize, new: &str) -> String {
    let mut parts = text.split(mark);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        whole.extend([mark, new, &part[length..]]);
    }
    whole
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn parsed(review: &Bytes) -> Value {
        serde_json::from_slice(review).unwrap()
    }

    #[test]
    fn every_review_is_about_one_object_under_one_name_in_one_namespace() {
        let reviews = Reviews::new(10_000);
        let repeats = (0..16).map(|turn| (reviews.repeat(turn), turn % 4));
        let openings = (1_230..1_234).map(|series| (reviews.opening(series), series % 4));
        for (bytes, kind) in repeats.chain(openings) {
            assert!(!bytes.contains(&b'#'), "{}", String::from_utf8_lossy(&bytes));
            let review = parsed(&bytes);
            let (request, object) = (&review["request"], &review["request"]["object"]);
            assert_eq!(request["name"], object["metadata"]["name"]);
            assert_eq!(request["namespace"], object["metadata"]["namespace"]);
            assert_eq!(request["namespace"], object["involvedObject"]["namespace"]);
            let about = object["involvedObject"]["name"].as_str().unwrap();
            assert!(request["name"].as_str().unwrap().starts_with(&format!("{about}.187a")));
            let series: u64 = about.rsplit('-').next().unwrap().parse().unwrap();
            assert_eq!(series % 4, kind);
            assert_eq!(request["namespace"], format!("team-{:05}", series / 100));
            let old = &request["oldObject"];
            assert!(old.is_null() || old["metadata"]["name"] == request["name"]);
            assert_eq!(request["uid"].as_str().unwrap().len(), 36);
        }
    }

    #[test]
    fn every_repeated_series_is_reported_in_turn_with_a_higher_count() {
        for series in [1_000, 10_000, 1_000_000] {
            let reviews = Reviews::new(series);
            let repeated = reviews.repeated() as u64;
            let named =
                |turn| parsed(&reviews.repeat(turn))["request"]["object"]["involvedObject"]["name"].clone();
            let about: BTreeSet<String> =
                (0..1_000.min(repeated)).map(|turn| named(turn).to_string()).collect();
            assert_eq!(about.len(), 1_000, "{series}");
            for kind in 0..4 {
                assert_eq!(named(kind), named(kind + repeated), "{series}");
            }
            let count = |turn| parsed(&reviews.repeat(turn))["request"]["object"]["count"].clone();
            assert_eq!((count(1), count(1 + repeated)), (1_000_000_001.into(), 1_000_000_002.into()));
            let count_of =
                |turn| parsed(&reviews.repeat(turn))["request"]["object"]["series"]["count"].clone();
            assert_eq!((count_of(3), count_of(3 + repeated)), (1_000_000_001.into(), 1_000_000_002.into()));
        }
    }

    #[test]
    fn an_update_names_the_opened_event_and_a_create_has_a_new_name() {
        let reviews = Reviews::new(1_000);
        let name = |review: &Bytes| parsed(review)["request"]["name"].as_str().unwrap().to_owned();
        let stored: BTreeSet<String> = (0..1_000).map(|series| name(&reviews.opening(series))).collect();
        assert_eq!(stored.len(), 1_000);
        let known: Vec<bool> = (0..8).map(|turn| stored.contains(&name(&reviews.repeat(turn)))).collect();
        assert_eq!(known, [false, true, false, true].repeat(2));
        let names: BTreeSet<String> = (0..4_000).step_by(2).map(|turn| name(&reviews.repeat(turn))).collect();
        assert_eq!(names.len(), 2_000, "names are unique");
    }

    #[test]
    fn a_repeat_has_the_key_of_its_series() {
        let reviews = Reviews::new(1_000);
        for turn in 0..8 {
            let repeat = parsed(&reviews.repeat(turn));
            let about = repeat["request"]["object"]["involvedObject"]["name"].as_str().unwrap();
            let series = about.rsplit('-').next().unwrap().parse().unwrap();
            let opening = parsed(&reviews.opening(series));
            for field in
                ["involvedObject", "reason", "message", "type", "reportingComponent", "reportingInstance"]
            {
                assert_eq!(repeat["request"]["object"][field], opening["request"]["object"][field], "{turn}");
            }
            assert_eq!(repeat["request"]["userInfo"], opening["request"]["userInfo"], "{turn}");
        }
    }
}
