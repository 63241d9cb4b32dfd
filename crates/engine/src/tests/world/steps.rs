//! The steps of a run and their frequencies.

use proptest::prelude::*;

use crate::{Api, Rules};

/// One step. A step that is impossible at the moment changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A legacy recorder reports an occurrence: absolute counts, CREATE after 404.
    Legacy(usize),
    /// A legacy recorder forgets its Event and starts another.
    LegacyForgets(usize),
    /// kube's Recorder: PATCHes every repeat through events.k8s.io and counts only successes.
    Kube(usize),
    /// client-go's `tools/events`: CREATEs, PATCHes the first repeat and counts the others locally.
    Tools,
    /// It reports them every half hour.
    ToolsRefresh,
    /// It reports them when its series ends.
    ToolsFinish,
    /// Its process restarts.
    ToolsRestart,
    /// A client CREATEs an Event of its own for each occurrence, with one of several messages.
    CreateOnly(usize, Api),
    /// The same with `generateName`.
    Generate,
    /// A client reads the stored Event, adds one and writes it back.
    Reader,
    /// It reads, and patches later what it has read.
    ReaderReads,
    /// The same, and it reads again after a 409.
    RetryingReader,
    /// A client with a fixed name creates its Event, and replaces the stored one after a 409.
    Replacer(usize),
    /// A client applies its own count under a fixed name.
    Applier,
    /// It restarts, and counts from 1.
    ApplierRestarts,
    /// A client CREATEs with `generateName`, and again after a 403.
    Kopf,
    /// A tenant with create permission only takes the name of a stored Event.
    TakeName(usize),
    /// The API server starts or stops to refuse one user's writes after admission.
    Validate,
    /// The namespace is deleted and created again.
    Renew,
    /// A client retries after a lost answer, or after a 409 that makes it retry.
    Retry(usize),
    /// A person annotates an Event.
    Annotate(usize),
    /// A person deletes an Event.
    Delete(usize),
    /// Time passes, in milliseconds. No write stays in progress for long.
    Pass(u64),
    /// The writer takes the due tasks.
    Take,
    /// The writer reads for one of its tasks.
    Read(usize),
    /// The writer writes the plan of one of its tasks.
    Write(usize, Fate),
    /// The writer completes everything due without faults.
    CatchUp,
    /// One of the writes in progress reaches etcd.
    Commit(usize, Commit),
    /// The API server skips the webhook for the next write.
    Overlook,
    /// squelch passes the next write without a decision.
    FailOpen,
    /// The API server closes the connection of the next review and stores the write. squelch finds the caller gone
    /// later, at [`Step::FindClosed`].
    GiveUp,
    /// squelch reads the n-th review whose caller has closed.
    FindClosed(usize),
    /// squelch decides the next review in time, but the answer is lost, and the API server stores the write.
    LoseAnswer,
    /// The API server has read the Event of the next UPDATE before its last write, and asks only now.
    ReadEarly,
    /// SIGTERM: squelch stops merging and flushes.
    Terminate,
    /// It has flushed and ended. Until another one starts, nothing or a standby replica answers.
    Depart { standby: bool },
    /// SIGKILL.
    Kill,
    /// Another replica becomes active while this one has pending occurrences, which it flushes late.
    LoseLease,
    /// A new replica becomes active.
    Begin,
}

/// The fate of a flush.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Answered,
    /// Stored, but the writer gets no answer.
    AnswerLost,
    /// Not stored.
    Failed,
}

/// The fate of an admitted write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Commit {
    Tried,
    /// Stored, but its client gets no answer.
    AnswerLost,
    /// Refused behind the webhook.
    Refused,
}

/// Messages of create-only clients. All other clients use the first.
pub(super) const MESSAGES: [&str; 5] = ["took 1s", "took 2s", "c", "d", "e"];

/// Returns the message that stands for all that are equal to this one under these rules.
pub(super) fn as_compared(message: &'static str, rules: &Rules) -> &'static str {
    if message.starts_with("took") && !rules.normalize.is_empty() { MESSAGES[0] } else { message }
}

/// Pauses in milliseconds: short ones, and values around the relevant times.
const PAUSES: [u64; 24] = [
    1, 7, 49, 500, 995, 1000, 1001, 1999, 2000, 2001, 4700, 12_000, 120_000, 300_000, 359_999, 360_000,
    360_001, 390_000, 600_000, 600_001, 1_700_000, 1_799_999, 1_800_001, 1_900_000,
];

/// Steps of runs without deletions and without refusals after admission.
pub(super) fn calm() -> Vec<Step> {
    let mut steps = vec![Step::Pass(1), Step::CatchUp, Step::Generate, Step::ToolsRestart];
    let mut often = |times: usize, step: Step| steps.extend(vec![step; times]);
    for at in 0..2 {
        often(4, Step::Legacy(at));
        often(2, Step::Kube(at));
        often(1, Step::LegacyForgets(at));
        often(1, Step::Retry(at));
    }
    often(4, Step::Tools);
    often(2, Step::ToolsRefresh);
    often(2, Step::ToolsFinish);
    (0..MESSAGES.len()).for_each(|message| often(1, Step::CreateOnly(message, Api::Core)));
    (0..MESSAGES.len()).for_each(|message| often(1, Step::CreateOnly(message, Api::Events)));
    often(5, Step::Take);
    for at in 0..4 {
        often(1, Step::Read(at));
        often(1, Step::Write(at, Fate::Answered));
        often(4, Step::Commit(at, Commit::Tried));
    }
    for step in [
        Step::Annotate(0),
        Step::Annotate(1),
        Step::Write(0, Fate::AnswerLost),
        Step::Write(0, Fate::Failed),
        Step::Commit(0, Commit::AnswerLost),
        Step::Commit(1, Commit::AnswerLost),
    ] {
        often(1, step);
    }
    steps
}

/// Also deletions, and refusals behind the webhook.
pub(super) fn harsh() -> Vec<Step> {
    let refused = [0, 1].map(|at| Step::Commit(at, Commit::Refused));
    [calm(), refused.to_vec(), vec![Step::Delete(0), Step::Delete(2)]].concat()
}

/// Calm runs with clients that read and add one, that create before they replace, that apply, or that retry after a 403,
/// with tenants that take names, a validator behind the webhook, and namespaces that are created again.
pub(super) fn with_others() -> Vec<Step> {
    let names = [0, 1, 2, 3].map(Step::TakeName);
    let clients = [
        vec![Step::Reader; 12],
        vec![Step::ReaderReads; 3],
        vec![Step::RetryingReader; 8],
        vec![Step::Replacer(0); 8],
        vec![Step::Replacer(1); 8],
        vec![Step::Applier; 8],
        vec![Step::ApplierRestarts; 1],
        vec![Step::Kopf; 3],
    ]
    .concat();
    [calm(), names.to_vec(), clients, vec![Step::Validate, Step::Renew]].concat()
}

/// Calm runs with orderly restarts.
pub(super) fn with_restarts() -> Vec<Step> {
    let departures = [true, false].map(|standby| Step::Depart { standby });
    [calm(), departures.to_vec(), vec![Step::Terminate, Step::Terminate, Step::Begin, Step::Begin]].concat()
}

/// Also restarts of every other kind.
pub(super) fn with_crashes() -> Vec<Step> {
    [with_restarts(), vec![Step::Kill, Step::LoseLease]].concat()
}

/// Calm runs in which some writes pass without a decision.
pub(super) fn with_oversights() -> Vec<Step> {
    [calm(), vec![Step::Overlook, Step::Overlook, Step::FailOpen]].concat()
}

/// Calm runs with reviews that the API server does not wait for.
pub(super) fn with_late_reviews() -> Vec<Step> {
    let late = [Step::GiveUp, Step::GiveUp, Step::FindClosed(0), Step::FindClosed(1)];
    [calm(), late.to_vec()].concat()
}

/// Calm runs with answers that are lost.
pub(super) fn with_lost_answers() -> Vec<Step> {
    [calm(), vec![Step::LoseAnswer; 2]].concat()
}

/// Calm runs with an API server that reads long before it asks.
pub(super) fn with_early_reads() -> Vec<Step> {
    [calm(), vec![Step::ReadEarly; 6]].concat()
}

/// Every client and every fault.
pub(super) fn with_everything() -> Vec<Step> {
    let deletions = vec![Step::Delete(0), Step::Delete(2), Step::Commit(0, Commit::Refused)];
    let begins = vec![Step::Begin, Step::Begin];
    [
        with_others(),
        with_crashes(),
        with_oversights(),
        with_late_reviews(),
        with_lost_answers(),
        deletions,
        begins,
    ]
    .concat()
}

/// Runs of these steps with pauses: one step in eight.
pub(super) fn steps_of_kinds(steps: Vec<Step>) -> impl Strategy<Value = Vec<Step>> {
    let pauses = steps.len() / 7;
    let pauses = (0..pauses.max(PAUSES.len())).map(|at| Step::Pass(PAUSES[at % PAUSES.len()]));
    // Selected from a list with one number for each step: ten thousand runs are generated in a second.
    let any = prop::sample::select([pauses.collect(), steps].concat());
    prop::collection::vec(any, 1..120)
}
