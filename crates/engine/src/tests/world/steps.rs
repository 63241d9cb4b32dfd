//! What can happen, and how often.

use proptest::prelude::*;

/// One thing that happens. One that cannot happen just now changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A legacy recorder tells of an occurrence: absolute counts, CREATE after 404.
    Legacy(usize),
    /// A legacy recorder forgets its Event, and begins another.
    LegacyForgets(usize),
    /// kube's Recorder: PATCHes every repeat through events.k8s.io, and counts only what succeeded.
    Kube(usize),
    /// client-go's `tools/events`: CREATEs, PATCHes the first repeat, and keeps the others to itself.
    Tools,
    /// It tells of them every half hour.
    ToolsRefresh,
    /// It tells of them when its series has ended.
    ToolsFinish,
    /// Its process restarts.
    ToolsRestart,
    /// A client CREATEs an Event of its own for an occurrence, with one of several messages.
    CreateOnly(usize),
    /// The same by `generateName`.
    Generate,
    /// A client reads the stored Event, adds one and writes it back.
    Reader,
    /// A tenant that may only create takes the name of a stored Event.
    TakeName(usize),
    /// The API server begins to refuse all that one user writes, after admission; or it ends that.
    Validate,
    /// The namespace is deleted and made again.
    Renew,
    /// A client whose answer was lost, or that takes a 409 for a reason to, asks again.
    Retry(usize),
    /// Somebody annotates an Event.
    Annotate(usize),
    /// Somebody deletes an Event.
    Delete(usize),
    /// Time passes, in milliseconds; no write stays under way for longer than a moment.
    Pass(u64),
    /// The writer takes what is due.
    Take,
    /// The writer reads for one of its orders.
    Read(usize),
    /// The writer writes what it planned for one of its orders.
    Write(usize, Fate),
    /// The writer does all that is due, without fault.
    CatchUp,
    /// One of the writes under way reaches etcd.
    Commit(usize, Commit),
    /// The API server does not wait for the next review: that write passes unseen.
    Overlook,
    /// squelch lets the next write through undecided.
    FailOpen,
    /// SIGTERM: squelch folds nothing more, and pays.
    Terminate,
    /// It has paid, and is gone. Until another begins, nobody answers, or a replica that is not active.
    Depart { standby: bool },
    /// SIGKILL.
    Kill,
    /// Another replica becomes active while this one still owes; it pays what it owes late.
    LoseLease,
    /// A new squelch becomes active.
    Begin,
}

/// What becomes of a flush.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Answered,
    /// It is stored, but the writer does not learn of it.
    AnswerLost,
    /// It is not stored.
    Failed,
}

/// What becomes of an admitted write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Commit {
    Tried,
    /// The same, but its client does not learn of it.
    AnswerLost,
    /// Something behind squelch refuses it.
    Refused,
}

/// How many messages create-only clients know. The first is everybody else's.
pub(super) const MESSAGES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Milliseconds from one thing to the next: moments, and what lies close around the times that matter.
const PAUSES: [u64; 24] = [
    1, 7, 49, 500, 995, 1000, 1001, 1999, 2000, 2001, 4700, 12_000, 120_000, 300_000, 359_999, 360_000,
    360_001, 390_000, 600_000, 600_001, 1_700_000, 1_799_999, 1_800_001, 1_900_000,
];

/// Any step of a life in which nothing is deleted, and nothing refused after admission.
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
    (0..MESSAGES.len()).for_each(|message| often(1, Step::CreateOnly(message)));
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

/// The same, and people who delete, and something behind squelch that refuses.
pub(super) fn harsh() -> Vec<Step> {
    let refused = [0, 1].map(|at| Step::Commit(at, Commit::Refused));
    [calm(), refused.to_vec(), vec![Step::Delete(0), Step::Delete(2)]].concat()
}

/// Calm lives with those who read and add one, those who take the names of others, a validator behind the webhook, and
/// namespaces that come again.
pub(super) fn with_others() -> Vec<Step> {
    let names = [0, 1, 2, 3].map(Step::TakeName);
    [calm(), names.to_vec(), vec![Step::Reader; 12], vec![Step::Validate, Step::Renew]].concat()
}

/// Calm lives, and restarts that end in order.
pub(super) fn with_restarts() -> Vec<Step> {
    let departures = [true, false].map(|standby| Step::Depart { standby });
    [calm(), departures.to_vec(), vec![Step::Terminate, Step::Terminate, Step::Begin, Step::Begin]].concat()
}

/// The same, and restarts of every kind.
pub(super) fn with_crashes() -> Vec<Step> {
    [with_restarts(), vec![Step::Kill, Step::LoseLease]].concat()
}

/// Calm lives in which some writes pass undecided.
pub(super) fn with_oversights() -> Vec<Step> {
    [calm(), vec![Step::Overlook, Step::Overlook, Step::FailOpen]].concat()
}

/// A life of such steps, with pauses between them: one step in eight is one.
pub(super) fn steps_of_kinds(steps: Vec<Step>) -> impl Strategy<Value = Vec<Step>> {
    let pauses = steps.len() / 7;
    let pauses = (0..pauses.max(PAUSES.len())).map(|at| Step::Pass(PAUSES[at % PAUSES.len()]));
    // Chosen from a list, one number a step: ten thousand lives are made in a second.
    let any = prop::sample::select([pauses.collect(), steps].concat());
    prop::collection::vec(any, 1..120)
}
