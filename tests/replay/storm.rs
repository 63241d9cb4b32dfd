//! A deterministic storm of Events: clients of every kind in ten namespaces, recorded without squelch.

use std::fmt::Write as _;

use serde_json::Value;

/// The user of squelch's own writes.
pub(crate) const OWN_USER: &str = "system:serviceaccount:squelch:squelch";

/// Start of the storm in seconds of the Unix epoch.
const BEGIN: u64 = 1_767_225_600;

/// The kind of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// client-go's legacy recorder: CREATE, then a PATCH of the count for each repeat.
    Legacy,
    /// kube's Recorder: the same through events.k8s.io.
    Kube,
    /// A CREATE per occurrence, under a new name.
    CreateOnly,
    /// Same with `generateName`.
    Generate,
}

const KINDS: [Kind; 4] = [Kind::Legacy, Kind::Kube, Kind::CreateOnly, Kind::Generate];
const REASONS: [&str; 4] = ["BackOff", "Unhealthy", "FailedMount", "Synced"];
const MESSAGES: [&str; 5] = [
    "Back-off restarting failed container app in pod",
    "Readiness probe failed: Get \"http://10.0.0.7:8080/healthz\": context deadline exceeded",
    "MountVolume.SetUp failed for volume \"config\" : configmap <config> not found",
    "synced\\n\twith a tab & an ä",
    "connection refused",
];

struct Client {
    kind: Kind,
    number: u64,
    event: Option<Event>,
}

/// An Event in the state of a client.
#[derive(Clone)]
struct Event {
    new_api: bool,
    namespace: u64,
    name: String,
    generate_name: bool,
    object: u64,
    reason: &'static str,
    message: String,
    count: i64,
    first: u64,
    last: u64,
    annotation: u64,
}

/// One write of the storm.
pub(crate) struct Written {
    /// Milliseconds of the Unix epoch.
    pub(crate) at: u64,
    pub(crate) user: String,
    pub(crate) dry_run: bool,
    event: Event,
    old: Option<Event>,
}

/// An endless storm.
pub(crate) struct Storm {
    random: u64,
    at: u64,
    per_second: u64,
    names: u64,
    clients: Vec<Client>,
}

impl Storm {
    /// `clients` clients of all kinds, with `per_second` writes on average.
    pub(crate) fn new(seed: u64, clients: u64, per_second: u64) -> Self {
        let client = |number| Client { kind: KINDS[(number % 4) as usize], number, event: None };
        Self {
            random: seed * 2 + 1,
            at: BEGIN * 1_000_000,
            per_second,
            names: 0,
            clients: (0..clients).map(client).collect(),
        }
    }

    /// xorshift64*.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn new_event(&mut self, client: &Client) -> Event {
        self.names += 1;
        let kind = client.kind;
        let (object, name) = (client.number, self.names);
        let message = MESSAGES[self.below(5) as usize];
        let several = kind == Kind::CreateOnly && self.below(3) == 0;
        let distinct = if several { format!(" (attempt {})", self.below(40)) } else { String::new() };
        Event {
            new_api: kind == Kind::Kube || (kind == Kind::Generate && client.number.is_multiple_of(8)),
            namespace: client.number / 4 % 10,
            name: format!("object-{object}.{name:016x}"),
            generate_name: kind == Kind::Generate,
            object,
            reason: REASONS[(client.number / 40 % 4) as usize],
            message: format!("{message}{distinct}"),
            count: 1,
            first: self.at / 1_000,
            last: self.at / 1_000,
            annotation: 0,
        }
    }

    fn next_write(&mut self) -> Written {
        let gap = self.below(2 * 1_000_000 / self.per_second + 1);
        self.at += gap;
        if self.below(5_000) == 0 {
            // A lull, long enough for series to close and heartbeats to come due.
            self.at += (self.below(40) + 1) * 60_000_000;
        }
        // Some clients are much busier than others.
        let which = self.below(self.clients.len() as u64) * self.below(1_000) / 1_000;
        let mut client = std::mem::replace(
            &mut self.clients[which as usize],
            Client { kind: Kind::Legacy, number: which, event: None },
        );
        let written = self.write(&mut client);
        self.clients[which as usize] = client;
        written
    }

    fn write(&mut self, client: &mut Client) -> Written {
        let repeats = matches!(client.kind, Kind::Legacy | Kind::Kube);
        let old = client.event.take().filter(|_| repeats && self.below(500) > 0);
        let user = match self.below(2_000) {
            0 => OWN_USER.to_owned(),
            1 => "jane".to_owned(),
            _ => format!("system:serviceaccount:ns-{}:emitter-{}", client.number / 4 % 10, client.number % 7),
        };
        let mut event = match &old {
            None => self.new_event(client),
            Some(old) => Event { count: old.count + 1, last: self.at / 1_000, ..old.clone() },
        };
        match (&old, self.below(1_000)) {
            // A manual edit; a write that lost a race and lowers the count; one with several occurrences.
            (Some(old), 0) => event = Event { annotation: old.annotation + 1, ..old.clone() },
            (Some(old), 1) if old.count > 2 => event.count = old.count - 1,
            (_, 2) => event.count += 3,
            _ => {}
        }
        let dry_run = self.below(3_000) == 0;
        client.event = if dry_run { old.clone() } else { Some(event.clone()) };
        Written { at: self.at / 1_000, user, dry_run, event, old }
    }
}

impl Iterator for Storm {
    type Item = Written;
    fn next(&mut self) -> Option<Written> {
        Some(self.next_write())
    }
}

impl Written {
    /// CREATE or UPDATE.
    pub(crate) fn operation(&self) -> &'static str {
        if self.old.is_some() { "UPDATE" } else { "CREATE" }
    }

    /// The line of a trace.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            r#"{{"at":{}.{:03},"operation":"{}","user":"{}","object":{}"#,
            self.at / 1000,
            self.at % 1000,
            self.operation(),
            self.user,
            self.event.json(self.event.new_api),
        );
        if let Some(old) = &self.old {
            let _ = write!(line, r#","oldObject":{}"#, old.json(old.new_api));
        }
        line.push_str(if self.dry_run { ",\"dryRun\":true}" } else { "}" });
        line
    }

    /// The review of the API server.
    pub(crate) fn review(&self, uid: usize) -> String {
        let event = &self.event;
        let group = if event.new_api { "events.k8s.io" } else { "" };
        let name = if event.generate_name { "" } else { &event.name };
        let mut review = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{uid}","kind":{{"group":"","version":"v1","kind":"Event"}},"requestKind":{{"group":"{group}","version":"v1","kind":"Event"}},"name":"{name}","namespace":"{}","operation":"{}","userInfo":{{"username":"{}"}},"object":{}"#,
            event.namespace(),
            self.operation(),
            self.user,
            event.json(false),
        );
        if let Some(old) = &self.old {
            let _ = write!(review, r#","oldObject":{}"#, old.json(false));
        }
        let _ = write!(review, r#","dryRun":{}}}}}"#, self.dry_run);
        review
    }

    /// The Event's namespace.
    pub(crate) fn namespace(&self) -> String {
        self.event.namespace()
    }
}

impl Event {
    fn namespace(&self) -> String {
        format!("ns-{}", self.namespace)
    }

    /// In the fields of core/v1, or of events.k8s.io/v1 if `new_words`.
    fn json(&self, new_words: bool) -> String {
        let word = |old, new| if new_words { new } else { old };
        let namespace = self.namespace();
        let mut json =
            format!(r#"{{"kind":"Event","apiVersion":"{}","metadata":{{"#, word("v1", "events.k8s.io/v1"));
        let _ = match self.generate_name {
            true => write!(json, r#""generateName":"object-{}-","#, self.object),
            false => write!(json, r#""name":"{}","#, self.name),
        };
        let _ = write!(
            json,
            r#""namespace":"{namespace}","creationTimestamp":null,"annotations":{{"edits":"{}"}}}},"#,
            self.annotation
        );
        let _ = write!(
            json,
            r#""{}":{{"kind":"Pod","namespace":"{namespace}","name":"object-{1}","uid":"0f7a3a38-2f4e-4f8e-9c7a-{1:012x}","apiVersion":"v1","resourceVersion":"48213","fieldPath":"spec.containers{{app}}"}},"#,
            word("involvedObject", "regarding"),
            self.object
        );
        let _ = write!(
            json,
            r#""reason":"{}","{}":{},"type":"{}","{}":{{"component":"kubelet","host":"node-{}"}},"#,
            self.reason,
            word("message", "note"),
            Value::from(self.message.as_str()),
            if self.reason == "Synced" { "Normal" } else { "Warning" },
            word("source", "deprecatedSource"),
            self.object % 50,
        );
        let _ = write!(
            json,
            r#""{}":"kubelet","reportingInstance":"node-{}","#,
            word("reportingComponent", "reportingController"),
            self.object % 50,
        );
        let micro = |at: u64| rfc3339(at, true);
        if self.new_api {
            let _ = write!(json, r#""action":"Sync","eventTime":"{}""#, micro(self.first));
            if self.count > 1 {
                let _ = write!(
                    json,
                    r#","series":{{"count":{},"lastObservedTime":"{}"}}"#,
                    self.count,
                    micro(self.last)
                );
            }
        } else {
            let _ = write!(
                json,
                r#""eventTime":null,"firstTimestamp":"{}","lastTimestamp":"{}","count":{}"#,
                rfc3339(self.first, false),
                rfc3339(self.last, false),
                self.count
            );
        }
        json.push('}');
        json
    }
}

fn rfc3339(milliseconds: u64, micro: bool) -> String {
    // All days of the storm are in January 2026.
    let seconds = milliseconds / 1000 - BEGIN;
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (month, day) = (day / 28 + 1, day % 28 + 1);
    let clock = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    if micro {
        format!("2026-{month:02}-{day:02}T{clock}.{:03}000Z", milliseconds % 1000)
    } else {
        format!("2026-{month:02}-{day:02}T{clock}Z")
    }
}
