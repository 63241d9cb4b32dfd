//! The storm of kubernetes#141022 as a trace: 50,000 pods are replaced within five minutes, and every step is
//! reported.
//!
//! The issue counts 145,259 Events in five minutes: 91 % by kubelets (`Killing`, 34.08 % of all, `Started`, `Created`
//! and `Pulled`), 9 % by the scheduler (`Scheduled`). It does not list the middle three: here a third each. One in a
//! hundred is a repeating Warning (`Unhealthy`, `BackOff`), which every rollout of this size has.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Writes of the whole storm.
const WRITES: u32 = 145_000;
const PODS: u32 = 50_000;
const NODES: u32 = 500;
const LENGTH: Duration = Duration::from_secs(300);

/// Number of writes of a repeating Event.
const TIMES: u32 = 5;

/// A step in the lifecycle of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The scheduler has found a node. Reported through `events.k8s.io/v1`; all others through `v1`.
    Scheduled,
    /// Its image is present.
    Pulled,
    /// Its container is created.
    Created,
    /// Its container is started.
    Started,
    /// A probe fails, repeatedly.
    Unhealthy,
    /// Its container fails, repeatedly.
    BackOff,
    /// It is terminated.
    Killing,
}

/// In the order of a pod's lifecycle.
pub const STEPS: [Step; 7] = [
    Step::Scheduled,
    Step::Pulled,
    Step::Created,
    Step::Started,
    Step::Unhealthy,
    Step::BackOff,
    Step::Killing,
];

impl Step {
    /// The reason of its Event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Pulled => "Pulled",
            Self::Created => "Created",
            Self::Started => "Started",
            Self::Unhealthy => "Unhealthy",
            Self::BackOff => "BackOff",
            Self::Killing => "Killing",
        }
    }

    /// Its share of 10,000 writes.
    fn share(self) -> u32 {
        match self {
            Self::Scheduled => 900,
            Self::Pulled | Self::Created | Self::Started => 1864,
            Self::Unhealthy | Self::BackOff => 50,
            Self::Killing => 3408,
        }
    }

    /// Delay after the scheduler's binding.
    fn lag(self) -> Duration {
        Duration::from_millis(match self {
            Self::Scheduled | Self::Killing => 0,
            Self::Pulled => 600,
            Self::Created => 700,
            Self::Started => 900,
            Self::Unhealthy | Self::BackOff => 2000,
        })
    }

    /// Whether it is a Warning.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::Unhealthy | Self::BackOff)
    }

    fn message(self, pod: &str, node: &str, namespace: &str) -> String {
        match self {
            Self::Scheduled => format!("Successfully assigned {namespace}/{pod} to {node}"),
            Self::Pulled => {
                "Container image \"registry.example.com/shop/web:4.2.0\" already present on machine".into()
            }
            Self::Created => "Created container: web".into(),
            Self::Started => "Started container web".into(),
            Self::Unhealthy => "Readiness probe failed: HTTP probe failed with statuscode: 503".into(),
            Self::BackOff => format!("Back-off restarting failed container web in pod {pod}"),
            Self::Killing => "Stopping container web".into(),
        }
    }
}

/// The storm, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    seed: u64,
    part: u32,
    length: Duration,
}

impl Churn {
    /// The whole storm. The seed determines it.
    pub fn whole(seed: u64) -> Self {
        Self { seed, part: 1, length: LENGTH }
    }

    /// One pod of this many, in the same time.
    #[must_use]
    pub fn one_of(self, pods: u32) -> Self {
        Self { part: pods, ..self }
    }

    /// Same storm within this time.
    #[must_use]
    pub fn within(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// The number of writes.
    pub fn len(&self) -> u32 {
        STEPS.into_iter().map(|step| self.of(step)).sum()
    }

    /// Whether it has no writes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All writes in order, created lazily.
    pub fn writes(self) -> impl Iterator<Item = Write> + Send {
        let mut made = [0; STEPS.len()];
        let due = move |step: Step, n| (n < self.of(step)).then(|| self.moment(step, n));
        let mut next = STEPS.map(|step| due(step, 0));
        std::iter::from_fn(move || {
            let left = next.iter().enumerate().filter_map(|(at, due)| due.map(|due| (due, at)));
            let (_, at) = left.min()?;
            let write = self.write(STEPS[at], made[at]);
            made[at] += 1;
            next[at] = due(STEPS[at], made[at]);
            Some(write)
        })
    }

    fn of(&self, step: Step) -> u32 {
        WRITES / self.part * step.share() / 10_000
    }

    fn pods(&self) -> u32 {
        PODS / self.part
    }

    /// The time of the n-th Event of this step: evenly spaced with jitter, never before the previous one.
    fn moment(&self, step: Step, n: u32) -> Duration {
        // The same for all steps, which keeps those of a pod in order.
        let chance = mixed(self.seed ^ u64::from(n)) as f64 / u64::MAX as f64;
        // The last one may be delayed, but is within the storm.
        let lagging = Step::Unhealthy.lag();
        let length = self.length.mul_f64((LENGTH - lagging).as_secs_f64() / LENGTH.as_secs_f64());
        let lag = step.lag().mul_f64(self.length.as_secs_f64() / LENGTH.as_secs_f64());
        length.mul_f64((f64::from(n) + chance) / f64::from(self.of(step))) + lag
    }

    fn write(&self, step: Step, n: u32) -> Write {
        // Pods that exist at the start are only killed. Some lifecycles are incomplete: recorders drop Events too.
        let coming = self.of(Step::Started);
        let first = self.pods() - coming;
        let (pod, count) = match step {
            Step::Pulled | Step::Created | Step::Started => (first + n, 1),
            Step::Scheduled => (first + scaled(n, coming, self.of(step)), 1),
            Step::Killing => (n, 1),
            // Two consecutive pods.
            Step::Unhealthy | Step::BackOff => {
                let pod = first + scaled(n - n % TIMES, coming, self.of(step));
                (pod + u32::from(step == Step::BackOff), n % TIMES + 1)
            }
        };
        let moment = |n| self.moment(step, n);
        Write {
            step,
            pod,
            count,
            at: moment(n),
            first: moment(n + 1 - count),
            last: moment(if count > 1 { n - 1 } else { n }),
            seed: self.seed,
        }
    }
}

fn scaled(n: u32, to: u32, of: u32) -> u32 {
    (u64::from(n) * u64::from(to) / u64::from(of.max(1))) as u32
}

/// splitmix64: a deterministic pseudo-random number.
fn mixed(of: u64) -> u64 {
    let mut z = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One write of the storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The step.
    pub step: Step,
    /// The number of the pod.
    pub pod: u32,
    /// The count, this time included: 1 is a CREATE, more a PATCH.
    pub count: u32,
    /// Time since the start of the storm.
    pub at: Duration,
    /// Times of the first and of the previous report; `at` for the first.
    first: Duration,
    last: Duration,
    seed: u64,
}

impl Write {
    /// A pod name of a Deployment, unique.
    pub fn pod_name(&self) -> String {
        format!("web-86b7cdd9c4-{:05}", self.pod)
    }

    /// The name of the Event: the pod's name and digits, as client-go appends them.
    pub fn name(&self) -> String {
        let digits = mixed(self.seed ^ u64::from(self.pod) << 8 ^ self.step as u64) >> 4;
        format!("{}.{digits:016x}", self.pod_name())
    }

    /// The user.
    pub fn user(&self) -> String {
        match self.step {
            Step::Scheduled => "system:kube-scheduler".to_owned(),
            _ => format!("system:node:{}", self.node()),
        }
    }

    fn node(&self) -> String {
        format!("node-{:03}", self.pod % NODES)
    }

    /// The Event as a recorder reports it the first time.
    pub fn event(&self, namespace: &str, now: Timestamp) -> Value {
        self.event_with(namespace, now, now, self.count)
    }

    fn event_with(&self, namespace: &str, first: Timestamp, last: Timestamp, count: u32) -> Value {
        let (pod, node) = (self.pod_name(), self.node());
        let message = self.step.message(&pod, &node, namespace);
        let uid = format!("5f0c2d1e-77aa-4b6e-9c1d-{:012x}", mixed(u64::from(self.pod)) >> 16);
        let mut regarding =
            json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid });
        let metadata = json!({ "name": self.name(), "namespace": namespace });
        if self.step == Step::Scheduled {
            return json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata,
                "regarding": regarding, "type": "Normal", "reason": "Scheduled", "action": "Binding", "note": message,
                "reportingController": "default-scheduler", "reportingInstance": "default-scheduler-control-plane-1",
                "eventTime": format!("{first:.6}") });
        }
        regarding["fieldPath"] = "spec.containers{web}".into();
        json!({ "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": regarding,
            "type": if self.step.is_warning() { "Warning" } else { "Normal" }, "reason": self.step.reason(),
            "message": message, "source": { "component": "kubelet", "host": node },
            "reportingComponent": "kubelet", "reportingInstance": node, "count": count,
            "firstTimestamp": format!("{first:.0}"), "lastTimestamp": format!("{last:.0}") })
    }

    /// A line of a trace for `squelch replay`, of a storm that begins at `begin`.
    pub fn line(&self, namespace: &str, begin: Timestamp) -> String {
        let time = |after: Duration| {
            SignedDuration::try_from(after)
                .ok()
                .and_then(|after| begin.checked_add(after).ok())
                .unwrap_or(begin)
        };
        let object = |last, count| self.event_with(namespace, time(self.first), time(last), count);
        let mut line = json!({ "at": self.at.as_secs_f64(), "operation": "CREATE", "user": self.user(),
            "object": object(self.at, self.count) });
        if self.count > 1 {
            line["operation"] = "UPDATE".into();
            line["oldObject"] = object(self.last, self.count - 1);
        }
        line.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Write as _;
    use std::path::PathBuf;

    use squelch::output::OutputFormat;
    use squelch::replay::{ClientBehavior, Options};

    use super::*;
    use crate::cluster::checkout;

    fn count(writes: &[Write]) -> BTreeMap<Step, usize> {
        let mut counts = BTreeMap::new();
        writes.iter().for_each(|write| *counts.entry(write.step).or_default() += 1);
        counts
    }

    #[test]
    fn the_whole_storm_has_the_numbers_of_the_issue() {
        let writes: Vec<_> = Churn::whole(1).writes().collect();
        assert_eq!(writes.len(), 145_000);
        assert_eq!(Churn::whole(1).len(), 145_000);
        let counts = count(&writes);
        assert_eq!(counts[&Step::Killing], 49_416);
        assert_eq!(counts[&Step::Scheduled], 13_050, "9 %; the other 91 % are the kubelets'");
        assert_eq!(counts[&Step::Started], 27_028);
        assert_eq!(counts[&Step::Unhealthy] + counts[&Step::BackOff], 1450);
        let pods: BTreeSet<_> = writes.iter().map(|write| write.pod).collect();
        assert_eq!(pods.len(), 50_000);
        let names: BTreeSet<_> = writes.iter().map(Write::name).collect();
        assert_eq!(names.len(), 145_000 - 1450 / 5 * 4, "one Event per write except for repeats");
    }

    #[test]
    fn its_rate_is_even_over_the_requested_time() {
        let mut tens = [0; 30];
        for write in Churn::whole(2).writes() {
            tens[(write.at.as_secs() / 10) as usize] += 1;
        }
        let mean = 145_000 / 30;
        assert!(tens[1..29].iter().all(|ten: &i32| (ten - mean).abs() < mean / 20), "{tens:?}");
        let minute = Churn::whole(2).within(Duration::from_secs(60));
        let last = minute.writes().last().unwrap();
        assert!((58.0..60.0).contains(&last.at.as_secs_f64()), "{last:?}");
        assert_eq!(minute.len(), 145_000);
    }

    #[test]
    fn a_fraction_has_the_same_shape() {
        let writes: Vec<_> = Churn::whole(3).one_of(10).writes().collect();
        assert_eq!(count(&writes)[&Step::Killing], 4941);
        assert!((14_490..=14_500).contains(&writes.len()), "{}", writes.len());
        let pods: BTreeSet<_> = writes.iter().map(|write| write.pod).collect();
        assert!((4_990..=5_000).contains(&pods.len()), "{}", pods.len());
    }

    #[test]
    fn steps_of_a_pod_are_ordered_and_times_never_decrease() {
        let mut last = Duration::ZERO;
        let mut lives: BTreeMap<u32, Vec<Write>> = BTreeMap::new();
        for write in Churn::whole(4).one_of(10).writes() {
            assert!(write.at >= last);
            last = write.at;
            lives.entry(write.pod).or_default().push(write);
        }
        for life in lives.values() {
            let steps: Vec<_> =
                life.iter().map(|write| write.step).filter(|step| !step.is_warning()).collect();
            assert!(steps.is_sorted(), "{steps:?}");
            for step in [Step::Unhealthy, Step::BackOff] {
                let counts: Vec<_> = life.iter().filter(|it| it.step == step).map(|it| it.count).collect();
                assert!(
                    counts.iter().copied().eq(1..=counts.len() as u32) && counts.len() <= 5,
                    "{counts:?}"
                );
            }
        }
    }

    #[test]
    fn a_seed_determines_the_storm() {
        let storm = |seed| Churn::whole(seed).one_of(100).writes().collect::<Vec<_>>();
        assert_eq!(storm(5), storm(5));
        assert_ne!(storm(5), storm(6));
    }

    #[test]
    fn a_replay_reads_the_storm_and_the_rollout_policy_removes_most_writes() {
        let input = std::env::temp_dir().join(format!("squelch-churn-{}.jsonl", std::process::id()));
        let mut file = std::fs::File::create(&input).unwrap();
        let churn = Churn::whole(7).one_of(10).within(Duration::from_secs(30));
        for write in churn.writes() {
            writeln!(file, "{}", write.line("shop", "2026-03-02T08:00:00Z".parse().unwrap())).unwrap();
        }
        let policies: Vec<PathBuf> = vec![checkout("examples/policies/rollout.yaml")];
        let report = squelch::replay::replay(&Options {
            input: input.clone(),
            policies,
            against: Vec::new(),
            namespace: "shop".to_owned(),
            all_namespaces: false,
            namespaces: None,
            as_enforced: false,
            own_user: "system:serviceaccount:squelch:squelch".to_owned(),
            format: None,
            clients: ClientBehavior::Adapted,
            skip_bad: false,
            output: OutputFormat::Json,
            decisions: None,
        });
        std::fs::remove_file(&input).unwrap();
        let report = report.unwrap();
        assert_eq!(report.input.writes, u64::from(churn.len()));
        let writes = &report.total.writes;
        // Each of five reasons has 100 tokens, and one more per second; the policy does not match Warnings.
        assert!((600..=650).contains(&writes.etcd_with), "{writes:?}");
        assert_eq!(report.total.occurrences.received, u64::from(churn.len() - churn.of(Step::Unhealthy) * 2));
    }
}
