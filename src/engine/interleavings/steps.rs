//! What can happen, and how often.

use proptest::prelude::*;

/// One thing that happens.
#[derive(Clone, Debug)]
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
    /// A client CREATEs an Event of its own for an occurrence.
    CreateOnly,
    /// The same by `generateName`.
    Generate,
    /// Somebody annotates the first Event.
    Annotate,
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
    /// One of the writes under way reaches etcd.
    Commit(usize, Commit),
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
    /// Something behind squelch refuses it.
    Refused,
}

/// Any step of a life in which nothing is deleted, nor refused after admission.
pub(super) fn step() -> BoxedStrategy<Step> {
    step_with(Just(Step::Annotate), Just(Commit::Tried))
}

/// Any step at all.
pub(super) fn harsh_step() -> BoxedStrategy<Step> {
    let commit = prop_oneof![9 => Just(Commit::Tried), 1 => Just(Commit::Refused)];
    step_with((0usize..4).prop_map(Step::Delete), commit)
}

fn step_with(
    meddling: impl Strategy<Value = Step> + 'static,
    commit: impl Strategy<Value = Commit> + 'static,
) -> BoxedStrategy<Step> {
    let around_a_second = 995u64..1005;
    let around_six_minutes = prop_oneof![300_000u64..400_000, 359_990u64..360_010];
    let around_half_an_hour = 1_700_000u64..1_900_000;
    let milliseconds = prop_oneof![
        1 => 1u64..50, 1 => 50u64..5_000, 1 => around_a_second, 2 => around_six_minutes, 1 => around_half_an_hour,
    ];
    let fate = prop_oneof![10 => Just(Fate::Answered), 1 => Just(Fate::AnswerLost), 1 => Just(Fate::Failed)];
    let steps = prop_oneof![
        8 => (0usize..2).prop_map(Step::Legacy),
        1 => (0usize..2).prop_map(Step::LegacyForgets),
        4 => (0usize..2).prop_map(Step::Kube),
        4 => Just(Step::Tools),
        2 => Just(Step::ToolsRefresh),
        2 => Just(Step::ToolsFinish),
        1 => Just(Step::ToolsRestart),
        2 => Just(Step::CreateOnly),
        1 => Just(Step::Generate),
        1 => Just(Step::Annotate),
        1 => meddling,
        4 => milliseconds.prop_map(Step::Pass),
        4 => Just(Step::Take),
        5 => (0usize..4).prop_map(Step::Read),
        5 => (0usize..4, fate).prop_map(|(at, fate)| Step::Write(at, fate)),
        12 => (0usize..4, commit).prop_map(|(at, commit)| Step::Commit(at, commit)),
    ];
    steps.boxed()
}
