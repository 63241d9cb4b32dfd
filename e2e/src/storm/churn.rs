//! The storm of kubernetes#141022 as a trace: 50,000 pods come and go within five minutes, and every step is told.
//!
//! The issue counts 145,259 Events in five minutes: 91 % by kubelets (`Killing`, 34.08 % of all, `Started`, `Created`
//! and `Pulled`), 9 % by the scheduler (`Scheduled`). It does not tell how many are of the middle three each: here a
//! third. Of each hundred one is something else, a Warning that repeats (`Unhealthy`, `BackOff`): no rollout of that
//! size is without.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// What the whole storm has.
const WRITES: u32 = 145_000;
const PODS: u32 = 50_000;
const NODES: u32 = 500;
const LENGTH: Duration = Duration::from_secs(300);

/// An Event that repeats is written so many times in all.
const TIMES: u32 = 5;

/// A step in the life of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The scheduler has found a node, and tells through `events.k8s.io/v1`. All others tell through `v1`.
    Scheduled,
    /// Its image is there.
    Pulled,
    /// Its container is made.
    Created,
    /// Its container runs.
    Started,
    /// A probe fails; told again and again.
    Unhealthy,
    /// Its container fails; told again and again.
    BackOff,
    /// It is ended.
    Killing,
}

/// In the order of a pod's life.
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

    /// Its writes of 10,000.
    fn share(self) -> u32 {
        match self {
            Self::Scheduled => 900,
            Self::Pulled | Self::Created | Self::Started => 1864,
            Self::Unhealthy | Self::BackOff => 50,
            Self::Killing => 3408,
        }
    }

    /// Behind the moment at which the scheduler is done with the pod.
    fn lag(self) -> Duration {
        Duration::from_millis(match self {
            Self::Scheduled | Self::Killing => 0,
            Self::Pulled => 600,
            Self::Created => 700,
            Self::Started => 900,
            Self::Unhealthy | Self::BackOff => 2000,
        })
    }

    /// Something is wrong.
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
    /// All of it. The same seed makes the same storm.
    pub fn whole(seed: u64) -> Self {
        Self { seed, part: 1, length: LENGTH }
    }

    /// One pod of so many, in the same time.
    #[must_use]
    pub fn one_of(self, pods: u32) -> Self {
        Self { part: pods, ..self }
    }

    /// The same within this time.
    #[must_use]
    pub fn within(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// How many writes it has.
    pub fn len(&self) -> u32 {
        STEPS.into_iter().map(|step| self.of(step)).sum()
    }

    /// It has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All writes, in their order; each is made when it is asked for.
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

    /// When the n-th Event of this step is told. Evenly, but for what chance moves it, and never before the one before.
    fn moment(&self, step: Step, n: u32) -> Duration {
        // A kubelet's three steps follow each other: chance moves them together.
        let moved = match step {
            Step::Created | Step::Started => Step::Pulled,
            other => other,
        };
        let chance = mixed(self.seed ^ (moved as u64) << 32 ^ u64::from(n)) as f64 / u64::MAX as f64;
        // The last may lag behind, and is still within the storm.
        let lagging = Step::Unhealthy.lag();
        let length = self.length.mul_f64((LENGTH - lagging).as_secs_f64() / LENGTH.as_secs_f64());
        let lag = step.lag().mul_f64(self.length.as_secs_f64() / LENGTH.as_secs_f64());
        length.mul_f64((f64::from(n) + chance) / f64::from(self.of(step))) + lag
    }

    fn write(&self, step: Step, n: u32) -> Write {
        // Those that are there at the beginning are only killed. Not every pod's life is told whole: recorders drop too.
        let coming = self.of(Step::Started);
        let first = self.pods() - coming;
        let (pod, count) = match step {
            Step::Pulled | Step::Created | Step::Started => (first + n, 1),
            Step::Scheduled => (first + scaled(n, coming, self.of(step)), 1),
            Step::Killing => (n, 1),
            // Two pods that came one after the other.
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

/// splitmix64: a number that looks like chance, the same for the same.
fn mixed(of: u64) -> u64 {
    let mut z = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One write of the storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What it tells.
    pub step: Step,
    /// The number of the pod.
    pub pod: u32,
    /// How often it was told by now, this time included: 1 is a CREATE, more a PATCH.
    pub count: u32,
    /// When, after the storm began.
    pub at: Duration,
    /// When the first of its kind was, and the one before; `at`, where this is the first.
    first: Duration,
    last: Duration,
    seed: u64,
}

impl Write {
    /// A pod of a Deployment; no two have one name.
    pub fn pod_name(&self) -> String {
        format!("web-86b7cdd9c4-{:05}", self.pod)
    }

    /// The Event's: that of its pod, and digits as client-go appends them.
    pub fn name(&self) -> String {
        let digits = mixed(self.seed ^ u64::from(self.pod) << 8 ^ self.step as u64) >> 4;
        format!("{}.{digits:016x}", self.pod_name())
    }

    /// Who writes.
    pub fn user(&self) -> String {
        match self.step {
            Step::Scheduled => "system:kube-scheduler".to_owned(),
            _ => format!("system:node:{}", self.node()),
        }
    }

    fn node(&self) -> String {
        format!("node-{:03}", self.pod % NODES)
    }

    /// The Event as a recorder writes it that tells it the first time now.
    pub fn event(&self, namespace: &str, now: Timestamp) -> Value {
        self.told(namespace, now, now, self.count)
    }

    fn told(&self, namespace: &str, first: Timestamp, last: Timestamp, count: u32) -> Value {
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

    /// A line of a trace for `squelch replay`, of a storm that begins then.
    pub fn line(&self, namespace: &str, begin: Timestamp) -> String {
        let time = |after: Duration| {
            SignedDuration::try_from(after)
                .ok()
                .and_then(|after| begin.checked_add(after).ok())
                .unwrap_or(begin)
        };
        let object = |last, count| self.told(namespace, time(self.first), time(last), count);
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

    use squelch::replay::{Clients, Options, Output};

    use super::*;
    use crate::cluster::checkout;

    fn count(writes: &[Write]) -> BTreeMap<Step, usize> {
        let mut counts = BTreeMap::new();
        writes.iter().for_each(|write| *counts.entry(write.step).or_default() += 1);
        counts
    }

    #[test]
    fn the_whole_storm_is_that_of_the_issue() {
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
        assert_eq!(names.len(), 145_000 - 1450 / 5 * 4, "an Event of its own for each but the repeats");
    }

    #[test]
    fn its_rate_is_even_and_its_time_is_five_minutes_or_what_is_asked_for() {
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
    fn a_part_has_the_same_shape() {
        let writes: Vec<_> = Churn::whole(3).one_of(10).writes().collect();
        assert_eq!(count(&writes)[&Step::Killing], 4941);
        assert!((14_490..=14_500).contains(&writes.len()), "{}", writes.len());
        let pods: BTreeSet<_> = writes.iter().map(|write| write.pod).collect();
        assert!((4_990..=5_000).contains(&pods.len()), "{}", pods.len());
    }

    #[test]
    fn the_steps_of_a_pod_follow_each_other_and_times_never_go_back() {
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
                let told: Vec<_> = life.iter().filter(|it| it.step == step).map(|it| it.count).collect();
                assert!(told.iter().copied().eq(1..=told.len() as u32) && told.len() <= 5, "{told:?}");
            }
        }
    }

    #[test]
    fn a_seed_says_all() {
        let storm = |seed| Churn::whole(seed).one_of(100).writes().collect::<Vec<_>>();
        assert_eq!(storm(5), storm(5));
        assert_ne!(storm(5), storm(6));
    }

    #[test]
    fn a_replay_understands_it_and_the_policy_for_rollouts_keeps_most_of_it_from_etcd() {
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
            namespace: "shop".to_owned(),
            all_namespaces: false,
            namespaces: None,
            as_enforced: false,
            own_user: "system:serviceaccount:squelch:squelch".to_owned(),
            format: None,
            clients: Clients::Adapted,
            skip_bad: false,
            output: Output::Json,
            decisions: None,
        });
        std::fs::remove_file(&input).unwrap();
        let report = report.unwrap();
        assert_eq!(report.input.writes, u64::from(churn.len()));
        let writes = &report.total.writes;
        // Each of five reasons has 100 tokens and one more each second. The Warnings, which it does not govern, are not
        // in the sum.
        assert!((500..=660).contains(&writes.etcd_with), "{writes:?}");
        assert_eq!(report.total.occurrences.received, u64::from(churn.len() - churn.of(Step::Unhealthy) * 2));
    }
}
