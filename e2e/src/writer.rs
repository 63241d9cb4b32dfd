//! An independent writer of Events: it does not use squelch, writes continuously through both APIs, and records every
//! answer that squelch causes or prevents.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Interval, interval_at};

use crate::wait::{GENEROUS, wait_for};

/// Number of concurrent workers, half of them per API. Each waits for its answers, so that its counts arrive in
/// order.
const HANDS: u32 = 20;

/// Timeout of an answer; squelch's webhook has at most 10 s.
const PATIENCE: Duration = Duration::from_secs(35);

/// The API server's message of a refusal by squelch's webhook.
const REFUSED: &str = "denied the request: squelch: ";

/// The API of a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventApi {
    Core,
    New,
}

/// The class of an answer.
enum Answer {
    Written,
    Refused,
    Failed(String),
}

/// A write that was neither stored nor refused by squelch.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Time since the start of the writer.
    pub after: Duration,
    /// Time until the answer or the timeout.
    pub took: Duration,
    /// The write and its answer.
    pub text: String,
}

/// One write and its latency.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Time since the start of the writer.
    pub after: Duration,
    /// Time until the answer.
    pub took: Duration,
    /// Whether squelch refused it: a replica is active.
    pub refused: bool,
}

/// The longest time without an active replica, as observed by a continuous writer: between two refusals, of which the
/// later came after `since`. Up to `until` if there is no later refusal.
pub fn gap(times: &[Timed], since: Duration, until: Duration) -> Duration {
    let Range { start, end } = longest_gap(times, since, until);
    end.saturating_sub(start)
}

/// Same, as its begin and end on the writer's clock.
pub fn longest_gap(times: &[Timed], since: Duration, until: Duration) -> Range<Duration> {
    let mut refused: Vec<_> = times.iter().filter(|timed| timed.refused).map(|timed| timed.after).collect();
    refused.sort_unstable();
    refused.retain(|after| *after <= until);
    refused.push(until);
    let pairs = refused.windows(2).filter(|pair| pair[1] > since);
    pairs
        .map(|pair| pair[0]..pair[1])
        .max_by_key(|gap| gap.end.saturating_sub(gap.start))
        .unwrap_or(Duration::ZERO..until)
}

/// A percentile of the latency of writes that began in this window.
pub fn percentile(times: &[Timed], hundredth: usize, from: Duration, to: Duration) -> Duration {
    let mut took: Vec<_> =
        times.iter().filter(|timed| (from..to).contains(&timed.after)).map(|timed| timed.took).collect();
    took.sort_unstable();
    took.get((took.len() * hundredth / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// The answers so far. Each write carries one occurrence.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Answered with success.
    pub written: usize,
    /// Refused by squelch, or 409.
    pub refused: usize,
    /// All other answers.
    pub failed: Vec<Failed>,
    /// The longest time until an answer.
    pub slowest: Duration,
}

impl Answers {
    /// The occurrences with an expected answer.
    pub fn occurrences(&self) -> usize {
        self.written + self.refused
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, refused, failed, slowest } = self;
        let count = failed.len();
        write!(f, "{written} written, {refused} refused, {count} failed; slowest {slowest:?}")?;
        for failed in failed.iter().take(10) {
            write!(f, "\nafter {:?}, in {:?}: {}", failed.after, failed.took, failed.text)?;
        }
        Ok(())
    }
}

/// A running writer. Stopped on drop.
pub struct Writer {
    /// When it started, for a comparison with logs.
    pub started: jiff::Timestamp,
    began: Instant,
    ended: Arc<AtomicBool>,
    answers: Arc<Mutex<Answers>>,
    times: Arc<Mutex<Vec<Timed>>>,
    workers: JoinSet<()>,
}

impl Writer {
    /// Starts to write into a namespace at a rate per second, with the identity of this kubeconfig. Its Events are
    /// about Pods with the name prefix `about`.
    ///
    /// # Errors
    /// If the kubeconfig is unusable.
    pub async fn start(kubeconfig: &Path, namespace: &str, about: &str, per_second: u32) -> Result<Self> {
        let client = client_without_retries(kubeconfig).await?;
        let (ended, answers, times) = (Arc::default(), Arc::default(), Arc::default());
        let (started, began) = (jiff::Timestamp::now(), Instant::now());
        let mut writer = Self { started, began, ended, answers, times, workers: JoinSet::new() };
        for number in 0..HANDS {
            let worker = Worker {
                client: client.clone(),
                api: if number % 2 == 0 { EventApi::Core } else { EventApi::New },
                namespace: namespace.to_owned(),
                object: format!("{about}-{number}"),
                names: 0,
                known: None,
            };
            let pause = Duration::from_secs(1) * HANDS / per_second.max(1);
            // Staggered start: otherwise each waits for all others.
            let ticks = interval_at((writer.began + pause * number / HANDS).into(), pause);
            let log = AnswerLog {
                began: writer.began,
                answers: writer.answers.clone(),
                times: writer.times.clone(),
            };
            writer.workers.spawn(worker.write(ticks, writer.ended.clone(), log));
        }
        Ok(writer)
    }

    /// The answers so far.
    pub fn so_far(&self) -> Answers {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All answered writes so far.
    pub fn times(&self) -> Vec<Timed> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Time since its start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for this many more answers of any kind.
    ///
    /// # Errors
    /// If a minute passes.
    pub async fn wait_for_answers(&self, answers: usize) -> Result<Answers> {
        let all = |answers: &Answers| answers.occurrences() + answers.failed.len();
        let goal = all(&self.so_far()) + answers;
        wait_for(&format!("{goal} answers to the independent writer"), GENEROUS, async || {
            let so_far = self.so_far();
            if all(&so_far) >= goal { Ok(so_far) } else { Err(so_far.to_string()) }
        })
        .await
    }

    /// Stops it after the answers to all its writes.
    pub async fn stop(mut self) -> Answers {
        self.ended.store(true, Ordering::Relaxed);
        while self.workers.join_next().await.is_some() {}
        self.so_far()
    }
}

/// A client without retries: failures are visible.
///
/// # Errors
/// If the kubeconfig is unusable.
pub async fn client_without_retries(kubeconfig: &Path) -> Result<Client> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The answers of all workers.
struct AnswerLog {
    began: Instant,
    answers: Arc<Mutex<Answers>>,
    times: Arc<Mutex<Vec<Timed>>>,
}

impl AnswerLog {
    fn note(&self, asked: Instant, what: &str, answer: Answer) {
        let (after, took) = (asked.duration_since(self.began), asked.elapsed());
        let refused = matches!(answer, Answer::Refused);
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push(Timed { after, took, refused });
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.slowest = answers.slowest.max(took);
        match answer {
            Answer::Written => answers.written += 1,
            Answer::Refused => answers.refused += 1,
            Answer::Failed(text) => {
                answers.failed.push(Failed { after, took, text: format!("{what}: {text}") });
            }
        }
    }
}

/// A worker writes about one object: alternately a new Event, and the next count of a stored one.
struct Worker {
    client: Client,
    api: EventApi,
    namespace: String,
    object: String,
    names: usize,
    /// A stored Event of the worker, and its last count.
    known: Option<(String, i64)>,
}

impl Worker {
    async fn write(mut self, mut ticks: Interval, ended: Arc<AtomicBool>, log: AnswerLog) {
        while !ended.load(Ordering::Relaxed) {
            ticks.tick().await;
            let asked = Instant::now();
            let (what, answer) = self.next().await;
            log.note(asked, &what, answer);
        }
    }

    async fn next(&mut self) -> (String, Answer) {
        self.names += 1;
        match self.known.take() {
            Some((name, count)) if self.names.is_multiple_of(2) => {
                let answer = self.count(&name, count + 1).await;
                self.known = Some((name.clone(), count + 1));
                (format!("PATCH {name}"), answer)
            }
            // Repeats have another message than new Events: a client's own count includes all occurrences only if no
            // other client reports the same key.
            Some(known) => {
                self.known = Some(known);
                let name = format!("{}.{:x}", self.object, self.names);
                (format!("POST {name}"), self.create(&name, "reported once").await)
            }
            None => {
                let name = format!("{}.{:x}", self.object, self.names);
                let answer = self.create(&name, "reported again and again").await;
                if matches!(answer, Answer::Written) {
                    self.known = Some((name.clone(), 1));
                }
                (format!("POST {name}"), answer)
            }
        }
    }

    fn path(&self, name: &str) -> String {
        let group = match self.api {
            EventApi::Core => "/api/v1",
            EventApi::New => "/apis/events.k8s.io/v1",
        };
        format!("{group}/namespaces/{}/events{name}?fieldManager=writer", self.namespace)
    }

    async fn create(&self, name: &str, message: &str) -> Answer {
        let regarding = json!({ "apiVersion": "v1", "kind": "Pod", "name": self.object,
            "namespace": self.namespace, "uid": self.object });
        let now = jiff::Timestamp::now();
        let mut event = json!({ "metadata": { "name": name }, "type": "Normal", "reason": "Written" });
        let specific = match self.api {
            EventApi::Core => json!({ "apiVersion": "v1", "kind": "Event", "involvedObject": regarding,
                "message": message, "count": 1, "source": { "component": "writer", "host": "outside" },
                "firstTimestamp": format!("{now:.0}"), "lastTimestamp": format!("{now:.0}") }),
            EventApi::New => json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event",
                "regarding": regarding, "note": message, "action": "Writing",
                "reportingController": "writer.example.com", "reportingInstance": "outside",
                "eventTime": format!("{now:.6}") }),
        };
        if let (Some(event), Value::Object(specific)) = (event.as_object_mut(), specific) {
            event.extend(specific);
        }
        let request = http::Request::post(self.path("")).header("content-type", "application/json");
        self.send(request, &event).await
    }

    async fn count(&self, name: &str, count: i64) -> Answer {
        let now = jiff::Timestamp::now();
        let change = match self.api {
            EventApi::Core => json!({ "count": count, "lastTimestamp": format!("{now:.0}") }),
            EventApi::New => json!({ "series": { "count": count, "lastObservedTime": format!("{now:.6}") } }),
        };
        let request = http::Request::patch(self.path(&format!("/{name}")))
            .header("content-type", "application/strategic-merge-patch+json");
        self.send(request, &change).await
    }

    async fn send(&self, request: http::request::Builder, body: &Value) -> Answer {
        let request = match request.body(body.to_string().into_bytes()) {
            Ok(request) => request,
            Err(error) => return Answer::Failed(error.to_string()),
        };
        match tokio::time::timeout(PATIENCE, self.client.request_text(request)).await {
            Ok(Ok(_)) => Answer::Written,
            Ok(Err(kube::Error::Api(status)))
                if status.code == 409 || (status.code == 403 && status.message.contains(REFUSED)) =>
            {
                Answer::Refused
            }
            Ok(Err(error)) => Answer::Failed(format!("{:#}", anyhow::Error::from(error))),
            Err(_) => Answer::Failed("no answer".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn timed(after: u64, took: u64, refused: bool) -> Timed {
        Timed { after: at(after), took: at(took), refused }
    }

    #[test]
    fn a_gap_lies_between_two_refusals_or_reaches_the_end() {
        let times = [timed(0, 1, true), timed(900, 1, true), timed(1_000, 1, false), timed(3_000, 1, true)];
        assert_eq!(gap(&times, at(950), at(3_500)), at(2_100));
        assert_eq!(gap(&times, at(3_000), at(3_500)), at(500));
        assert_eq!(gap(&times, at(2_000), at(9_000)), at(6_000), "no replica is active any more");
        assert_eq!(gap(&[], at(0), at(7)), at(7));
    }

    #[test]
    fn a_percentile_covers_only_its_window() {
        let times: Vec<_> = (0..100).map(|n| timed(n * 10, n, false)).collect();
        assert_eq!(percentile(&times, 99, at(0), at(1_000)), at(99));
        assert_eq!(percentile(&times, 50, at(0), at(100)), at(5));
        assert_eq!(percentile(&times, 99, at(5_000), at(6_000)), Duration::ZERO);
    }
}
