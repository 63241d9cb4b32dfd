//! A small world around the engine, for random runs in which nothing is atomic.
//!
//! Clients of every kind forget names, share identities and retry. Between admission and commit their writes
//! can meet conflicts and be reviewed again, find that another client was faster, be refused, or lose their
//! answers. People annotate and delete; Events expire. Flushes fail, meet conflicts and lose their answers.
//! squelch is terminated, killed and replaced, and the API server sometimes skips the webhook.
//!
//! `laws.rs` has what must hold at each step and at the end. A broken law is reported with the trace of the
//! run.

mod api_server;
mod clients;
mod counts;
mod etcd;
mod laws;
mod minimal;
mod operator;
mod oracle;
mod reviews;
mod steps;
mod writer;

use std::collections::BTreeSet;
use std::time::Duration;

use super::model::{self, NaiveModel};
use super::*;
use crate::testing::counters_of;
use clients::{Knowledge, Memories, ReadBack, Reply, Request, type_of};
use etcd::{Etcd, Stored, Written};
use laws::Policy;
use operator::{Replica, Webhook};
use oracle::{Decided, Oracle};
use steps::{Commit, Step};
use writer::HeldTask;

/// Interval of client-go's retries.
const ASKED_AGAIN: Duration = Duration::from_secs(10);
/// Maximum length of a run. Names are remembered for a day.
const LONGEST: Duration = Duration::from_secs(20 * 3600);

struct World {
    rules: Rules,
    /// The message that the policy mutes.
    muted: Option<&'static str>,
    max_series: usize,
    /// Whether client-go's events recorder takes part.
    with_tools: bool,
    /// Whether the naive model decides beside the engine.
    with_model: bool,
    now: Moment,
    etcd: Etcd,
    clients: Memories,
    knowledge: Knowledge,
    /// Writes that are admitted and not yet in etcd.
    pending: Vec<Request>,
    /// Requests that their clients will retry.
    unanswered: Vec<Request>,
    /// All replicas so far. The last one is active, if any is.
    replicas: Vec<Replica>,
    webhook: Webhook,
    tasks: Vec<HeldTask>,
    /// What the next review skips: the webhook, or the decision.
    oversight: Option<Step>,
    /// Whether the API server has read the Event of the next UPDATE before its last write.
    has_read_early: bool,
    balance: Balance,
    oracle: Oracle,
    /// Reviews whose caller has closed, with the Event that the API server showed.
    late: Vec<(Request, Option<Stored>)>,
    /// Counters of all replicas.
    counted: Counters,
    names_are_forgotten: bool,
    /// The user whose writes the API server refuses after admission.
    refused_user: Option<&'static str>,
    /// How often the namespace was created again.
    renewals: usize,
    /// Names stored by a client's write, and their users.
    ever: BTreeSet<String>,
    ever_users: BTreeSet<&'static str>,
    broken: Vec<String>,
    trace: Vec<String>,
}

/// What is known about the truth.
#[derive(Debug, Default)]
struct Balance {
    /// Occurrences that the engines should have received.
    truth: i64,
    /// Occurrences reported to a replica that an earlier one had received.
    reported_again: i64,
    /// Occurrences pending in replicas that ended without flushing.
    lost: i64,
    /// Occurrences admitted and then refused behind the webhook.
    refused: i64,
    /// Changes by writes without a decision; what they destroyed may have been restored.
    unseen: i64,
    /// Whether a write passed or was refused without a decision of an engine.
    passed_unseen: bool,
    /// Whether a counted write did not reach etcd as admitted. The stored counts then cannot be checked.
    disturbed: bool,
}

impl World {
    fn new(rules: Rules) -> Self {
        let is_shared = rules.aggregation.is_some_and(|it| it.group_by == GroupBy::Kind);
        let mut world = Self {
            rules,
            muted: None,
            max_series: 1000,
            with_tools: true,
            with_model: true,
            now: Moment::from_epoch(Duration::from_secs(1)),
            etcd: Etcd::default(),
            clients: Memories::default(),
            knowledge: Knowledge::default(),
            pending: Vec::new(),
            unanswered: Vec::new(),
            replicas: Vec::new(),
            webhook: Webhook::Unreachable,
            tasks: Vec::new(),
            oversight: None,
            has_read_early: false,
            balance: Balance::default(),
            oracle: Oracle::new(is_shared),
            late: Vec::new(),
            counted: Counters::default(),
            names_are_forgotten: false,
            refused_user: None,
            renewals: 0,
            ever: BTreeSet::new(),
            ever_users: BTreeSet::new(),
            broken: Vec::new(),
            trace: Vec::new(),
        };
        world.start_replica(Timestamp::UNIX_EPOCH);
        world
    }

    /// Returns a world with this policy and without client-go's events recorder.
    fn under(Policy { rules, muted }: Policy) -> Self {
        Self { muted, with_tools: false, ..Self::new(rules) }
    }

    /// Returns `rules` as the policy that governs a write.
    fn governing<'r>(&self, rules: &'r Rules, asked: &Observation<'_>) -> Governing<'r> {
        Governing { rules, treatment: if self.mutes(asked) { Treatment::Mute } else { Treatment::Stages } }
    }

    fn mutes(&self, asked: &Observation<'_>) -> bool {
        self.muted.is_some_and(|muted| *muted == *asked.event.message)
    }

    fn expiring(mut self, ttl: Duration) -> Self {
        self.etcd.ttl = Some(ttl);
        self
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Legacy(number) => self.legacy(number),
            Step::LegacyForgets(number) => self.legacy_forgets(number),
            Step::Kube(number) => self.kube(number),
            Step::Tools => self.tools(),
            Step::ToolsRefresh => self.tools_refresh(),
            Step::ToolsFinish => self.tools_finish(),
            Step::ToolsRestart => self.tools_restart(),
            Step::CreateOnly(message, api) => self.create_only(message, api),
            Step::Generate => self.generate(),
            Step::ReaderReads => self.reader_reads(),
            Step::Reader => self.reader(),
            Step::RetryingReader => self.retrying_reader(),
            Step::Replacer(number) => self.replacer(number),
            Step::Applier => self.applier(),
            Step::ApplierRestarts => self.applier_restarts(),
            Step::Kopf => self.kopf(),
            Step::TakeName(at) => self.take_name(at),
            Step::Validate => self.validate(),
            Step::Renew => self.renew(),
            Step::Retry(at) => self.retry(at),
            Step::Annotate(at) => self.annotate(at),
            Step::Delete(at) => self.delete(at),
            Step::Pass(milliseconds) => self.pass(Duration::from_millis(milliseconds)),
            Step::Take => self.take(),
            Step::Read(at) => self.read(at),
            Step::Write(at, fate) => self.write(at, fate),
            Step::CatchUp => self.catch_up(),
            Step::Commit(at, commit) => self.commit(at, commit),
            Step::FindClosed(at) => self.find_closed(at),
            Step::Overlook | Step::FailOpen | Step::GiveUp | Step::LoseAnswer => self.oversight = Some(step),
            Step::ReadEarly => self.has_read_early = true,
            Step::Terminate => self.terminate(),
            Step::Depart { standby } => self.depart(standby),
            Step::Kill => self.kill(),
            Step::LoseLease => self.lose_lease(),
            Step::Begin => self.begin(),
        }
        self.check_each_step();
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        let seconds = self.now.since(Moment::default()).as_secs_f64();
        self.trace.push(format!("{seconds:>10.3}  {what}"));
    }

    fn break_law(&mut self, how: String) {
        self.note(format_args!("!! {how}"));
        self.broken.push(how);
    }

    fn pass(&mut self, time: Duration) {
        if self.now.since(Moment::default()) + time > LONGEST {
            return;
        }
        if time >= Duration::from_millis(900) {
            self.commit_all();
        }
        if time >= ASKED_AGAIN {
            self.retry_all();
            self.find_all_closed(); // a process that is stalled for longer loses its Lease
        }
        self.now = self.now.plus(time);
        for (name, count) in self.etcd.expire(self.now) {
            self.note(format_args!("etcd: {name} expires"));
            self.oracle.deletes(&name, count);
            self.balance.disturbed = true;
        }
    }
}
