//! An independent writer of Events: somebody who has nothing to do with squelch, writes all the time through both
//! APIs, and writes down every answer that he would not have got without squelch or from it.

use std::fmt;
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

/// How many write at a time, half of them through each API. Each waits for its answers, so that the counts it tells
/// arrive in order.
const HANDS: u32 = 20;

/// An answer that takes longer is none: squelch's webhook has 10 s at most.
const PATIENCE: Duration = Duration::from_secs(35);

/// What the API server says of a write that squelch's webhook has refused.
const REFUSED: &str = "denied the request: squelch: ";

/// Which API a hand writes through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Core,
    New,
}

/// How an answer counts.
enum Answer {
    Written,
    Refused,
    Failed(String),
}

/// A write that was neither stored nor refused by squelch.
#[derive(Clone, Debug)]
pub struct Failed {
    /// After the writer began.
    pub after: Duration,
    /// Until the answer, or the lack of one.
    pub took: Duration,
    /// What was written, and what the answer says.
    pub text: String,
}

/// One write, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// After the writer began.
    pub after: Duration,
    /// Until the answer.
    pub took: Duration,
    /// squelch held it back: somebody decides.
    pub refused: bool,
}

/// The longest time in which nobody decided, seen by one who writes all the time: between two refusals, of which the
/// later came after `since`. Up to `until` where none came any more.
pub fn gap(times: &[Timed], since: Duration, until: Duration) -> Duration {
    let mut refused: Vec<_> = times.iter().filter(|timed| timed.refused).map(|timed| timed.after).collect();
    refused.sort_unstable();
    refused.retain(|after| *after <= until);
    refused.push(until);
    let pairs = refused.windows(2).filter(|pair| pair[1] > since);
    pairs.map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(until)
}

/// The time that so many of a hundred writes take at most that began in this window.
pub fn percentile(times: &[Timed], hundredth: usize, from: Duration, to: Duration) -> Duration {
    let mut took: Vec<_> =
        times.iter().filter(|timed| (from..to).contains(&timed.after)).map(|timed| timed.took).collect();
    took.sort_unstable();
    took.get((took.len() * hundredth / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// What became of the writes so far. Each carries one occurrence.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Answered with success.
    pub written: usize,
    /// Refused by squelch, or 409.
    pub refused: usize,
    /// Every other.
    pub failed: Vec<Failed>,
    /// The longest time until an answer.
    pub slowest: Duration,
}

impl Answers {
    /// The occurrences that the API server was told of and has answered as it may.
    pub fn occurrences(&self) -> usize {
        self.written + self.refused
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, refused, failed, slowest } = self;
        let count = failed.len();
        write!(f, "{written} written, {refused} refused, {count} failed; the slowest took {slowest:?}")?;
        for failed in failed.iter().take(10) {
            write!(f, "\nafter {:?}, in {:?}: {}", failed.after, failed.took, failed.text)?;
        }
        Ok(())
    }
}

/// A running writer. It ends with its value.
pub struct Writer {
    began: Instant,
    ended: Arc<AtomicBool>,
    answers: Arc<Mutex<Answers>>,
    times: Arc<Mutex<Vec<Timed>>>,
    hands: JoinSet<()>,
}

impl Writer {
    /// Starts to write into a namespace, so many times a second, with the identity of this kubeconfig. Its Events are
    /// about Pods that `about` begins.
    ///
    /// # Errors
    /// That the kubeconfig cannot be used.
    pub async fn start(kubeconfig: &Path, namespace: &str, about: &str, per_second: u32) -> Result<Self> {
        let client = patient_client(kubeconfig).await?;
        let (ended, answers, times) = (Arc::default(), Arc::default(), Arc::default());
        let mut writer = Self { began: Instant::now(), ended, answers, times, hands: JoinSet::new() };
        for number in 0..HANDS {
            let hand = Hand {
                client: client.clone(),
                through: if number % 2 == 0 { Through::Core } else { Through::New },
                namespace: namespace.to_owned(),
                object: format!("{about}-{number}"),
                names: 0,
                known: None,
            };
            let pause = Duration::from_secs(1) * HANDS / per_second.max(1);
            // One after the other, or each would wait for all the others.
            let ticks = interval_at((writer.began + pause * number / HANDS).into(), pause);
            let book =
                Book { began: writer.began, answers: writer.answers.clone(), times: writer.times.clone() };
            writer.hands.spawn(hand.write(ticks, writer.ended.clone(), book));
        }
        Ok(writer)
    }

    /// What became of its writes so far.
    pub fn so_far(&self) -> Answers {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Each write so far that has its answer.
    pub fn times(&self) -> Vec<Timed> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long it has been writing.
    pub fn has_written_for(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until it has got so many more answers, whatever they are.
    ///
    /// # Errors
    /// That it has not within a minute.
    pub async fn goes_on(&self, answers: usize) -> Result<Answers> {
        let all = |answers: &Answers| answers.occurrences() + answers.failed.len();
        let goal = all(&self.so_far()) + answers;
        wait_for(&format!("{goal} answers to the independent writer"), GENEROUS, async || {
            let so_far = self.so_far();
            if all(&so_far) >= goal { Ok(so_far) } else { Err(so_far.to_string()) }
        })
        .await
    }

    /// Ends it, once it has the answers to all that it has written.
    pub async fn stop(mut self) -> Answers {
        self.ended.store(true, Ordering::Relaxed);
        while self.hands.join_next().await.is_some() {}
        self.so_far()
    }
}

/// A client that asks once: what fails is to be seen.
///
/// # Errors
/// That the kubeconfig cannot be used.
pub async fn patient_client(kubeconfig: &Path) -> Result<Client> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.read_timeout = Some(PATIENCE);
    Ok(Client::try_from(config)?)
}

/// Where every hand writes down its answers.
struct Book {
    began: Instant,
    answers: Arc<Mutex<Answers>>,
    times: Arc<Mutex<Vec<Timed>>>,
}

impl Book {
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

/// Writes about one object: by turns a new Event, and the next count of one that was stored.
struct Hand {
    client: Client,
    through: Through,
    namespace: String,
    object: String,
    names: usize,
    /// A stored Event of its own, and the count that it was told last.
    known: Option<(String, i64)>,
}

impl Hand {
    async fn write(mut self, mut ticks: Interval, ended: Arc<AtomicBool>, book: Book) {
        while !ended.load(Ordering::Relaxed) {
            ticks.tick().await;
            let asked = Instant::now();
            let (what, answer) = self.next().await;
            book.note(asked, &what, answer);
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
            // What repeats says something else than what is new each time: a client's own count tells of all that
            // happened, if nobody else reports the same.
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
        let group = match self.through {
            Through::Core => "/api/v1",
            Through::New => "/apis/events.k8s.io/v1",
        };
        format!("{group}/namespaces/{}/events{name}?fieldManager=writer", self.namespace)
    }

    async fn create(&self, name: &str, message: &str) -> Answer {
        let regarding = json!({ "apiVersion": "v1", "kind": "Pod", "name": self.object,
            "namespace": self.namespace, "uid": self.object });
        let now = jiff::Timestamp::now();
        let mut event = json!({ "metadata": { "name": name }, "type": "Normal", "reason": "Written" });
        let specific = match self.through {
            Through::Core => json!({ "apiVersion": "v1", "kind": "Event", "involvedObject": regarding,
                "message": message, "count": 1, "source": { "component": "writer", "host": "outside" },
                "firstTimestamp": format!("{now:.0}"), "lastTimestamp": format!("{now:.0}") }),
            Through::New => json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event",
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
        let change = match self.through {
            Through::Core => json!({ "count": count, "lastTimestamp": format!("{now:.0}") }),
            Through::New => json!({ "series": { "count": count, "lastObservedTime": format!("{now:.6}") } }),
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
    fn a_gap_is_what_lies_between_two_refusals_and_reaches_to_the_end() {
        let times = [timed(0, 1, true), timed(900, 1, true), timed(1_000, 1, false), timed(3_000, 1, true)];
        assert_eq!(gap(&times, at(950), at(3_500)), at(2_100));
        assert_eq!(gap(&times, at(3_000), at(3_500)), at(500));
        assert_eq!(gap(&times, at(2_000), at(9_000)), at(6_000), "nobody decides any more");
        assert_eq!(gap(&[], at(0), at(7)), at(7));
    }

    #[test]
    fn a_percentile_is_of_its_window() {
        let times: Vec<_> = (0..100).map(|n| timed(n * 10, n, false)).collect();
        assert_eq!(percentile(&times, 99, at(0), at(1_000)), at(99));
        assert_eq!(percentile(&times, 50, at(0), at(100)), at(5));
        assert_eq!(percentile(&times, 99, at(5_000), at(6_000)), Duration::ZERO);
    }
}
