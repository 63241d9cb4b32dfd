//! The effect of each policy on its trace.

use super::*;

impl Replayed {
    fn of(policy: &str) -> Self {
        replayed(policy).remove(0)
    }

    fn occurrences(&self, disposition: &str) -> u64 {
        self.report["total"]["occurrences"][disposition].as_u64().unwrap()
    }

    /// The names of the stored Events of clients, grouped by a key of the Event.
    fn stored(&self, by: impl Fn(&Value) -> String) -> BTreeMap<String, BTreeSet<String>> {
        let mut stored: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (write, decided) in &self.writes {
            if decided["answer"] == "allow" && !decided["policy"].is_null() {
                stored.entry(by(&write["object"])).or_default().insert(decided["name"].to_string());
            }
        }
        stored
    }

    fn warnings(&self, dispositions: &[&str]) -> usize {
        let fits = |(write, decided): &&(Value, Value)| {
            write["object"]["type"] == "Warning"
                && dispositions.iter().any(|of| decided["disposition"] == *of)
        };
        self.writes.iter().filter(fits).count()
    }

    fn drops_nothing(&self) {
        let dropped = ["filtered", "throttled", "muted"].map(|disposition| self.occurrences(disposition));
        assert_eq!(dropped, [0; 3]);
    }
}

/// The object's name, of either API.
fn about(event: &Value) -> String {
    let name = event["involvedObject"]["name"].as_str().or(event["regarding"]["name"].as_str());
    name.unwrap().to_owned()
}

#[test]
fn a_crash_loop_becomes_one_event_per_reason() {
    let replay = Replayed::of("crash-loops");
    replay.drops_nothing();
    let stored = replay.stored(|event| format!("{} {}", about(event), event["reason"]));
    assert_eq!(stored.len(), 20 * 4);
    assert!(stored.values().all(|names| names.len() == 1), "{stored:?}");
    let (writes, total) =
        (&replay.report["input"]["writes"], &replay.report["total"]["occurrences"]["received"]);
    let shown = format!("{} writes that carry {} occurrences", grouped(writes), grouped(total));
    let text =
        include_str!("../../docs/where-events-get-lost.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&shown), "docs/where-events-get-lost.md does not say {shown}");
}

#[test]
fn a_failing_probe_becomes_at_most_five_events() {
    let replay = Replayed::of("failing-probes");
    replay.drops_nothing();
    let summaries = replay.report["summaries"].as_array().unwrap();
    let mut stored = replay.stored(about);
    assert_eq!(stored.len(), 30);
    for summary in summaries {
        let (pod, _) = summary["name"].as_str().unwrap().rsplit_once('.').unwrap();
        stored.get_mut(pod).unwrap().insert(summary["name"].to_string());
    }
    assert!(summaries.len() >= 15);
    assert!(stored.values().all(|names| names.len() <= 5), "{stored:?}");
}

#[test]
fn unschedulable_pods_become_nine_events_and_a_summary() {
    let replay = Replayed::of("failed-scheduling");
    replay.drops_nothing();
    let summaries = replay.report["summaries"].as_array().unwrap();
    let stored = replay.stored(about);
    // The refreshes after half an hour open new groups.
    assert_eq!((stored.len(), summaries.len()), (18, 2), "{stored:?}");
    let says = |number: usize, words: &str| summaries[number]["message"].as_str().unwrap().contains(words);
    assert!(says(0, "on 191 objects") && says(1, "on 200 objects"), "{summaries:?}");
}

#[test]
fn the_last_completed_job_of_each_cron_job_stays_visible() {
    let replay = Replayed::of("cron-jobs");
    replay.drops_nothing();
    let mut last = BTreeMap::new();
    for (write, _) in replay.writes.iter().filter(|(write, _)| write["object"]["reason"] == "SawCompletedJob")
    {
        last.insert(about(&write["object"]), write["object"]["message"].as_str().unwrap());
    }
    assert_eq!(last.len(), 20);
    let summaries = replay.report["summaries"].as_array().unwrap();
    for (cron_job, message) in last {
        let shown = summaries.iter().any(|summary| {
            let said = summary["message"].as_str().unwrap();
            summary["name"].as_str().unwrap().starts_with(&format!("{cron_job}.")) && said.ends_with(message)
        });
        assert!(shown, "{cron_job}: {message}");
    }
}

#[test]
fn client_go_alone_can_drop_the_last_completed_job() {
    let each_minute = |minutes| {
        let generated = trace(storms::cron_jobs(&mut Dice::new(1), "reports", 1, 1, minutes));
        let about_it =
            generated.lines().filter(|line| line.contains(r#""kind":"CronJob""#)).map(str::to_owned);
        about_it.collect::<Vec<_>>()
    };
    let (after_nine, after_sixty) = (each_minute(9), each_minute(60));
    let later = &after_sixty[after_nine.len()..];
    // One of fifteen, and never the last one.
    assert!((9..=12).contains(&later.len()), "{later:?}");
    assert!(!later.last().unwrap().contains("SawCompletedJob"));
    assert!(later.iter().skip(2).all(|line| line.contains("SuccessfulCreate")), "{later:?}");
}

#[test]
fn a_rollout_stores_at_most_the_bucket_of_each_reason() {
    let replay = Replayed::of("rollout");
    let stored = replay.stored(|event| event["reason"].to_string());
    assert_eq!(stored.len(), 5);
    let seconds = replay.report["input"]["to"].as_f64().unwrap();
    assert!(stored.values().all(|names| names.len() <= 101 + seconds as usize), "{stored:?}");
    assert_eq!(replay.occurrences("filtered") + replay.occurrences("admitted"), 2500);
}

#[test]
fn events_of_the_cluster_about_a_noisy_tenant_are_not_governed() {
    let replay = Replayed::of("noisy-tenant");
    let of_nodes = |write: &Value| write["user"].as_str().unwrap().starts_with("system:node:");
    let (nodes, tenant): (Vec<_>, Vec<_>) = replay.writes.iter().partition(|(write, _)| of_nodes(write));
    assert!(nodes.len() > 20 && nodes.iter().all(|(_, decided)| decided["stage"] == "no-policy"));
    let stored = tenant.iter().filter(|(_, decided)| decided["answer"] == "allow").count();
    assert!(stored <= 50 + 120, "{stored}");
}

#[test]
fn the_never_drop_warnings_policy_drops_no_warning() {
    let dropped = ["filtered", "throttled"];
    let before = Replayed::of("noisy-tenant").warnings(&dropped);
    let comment = fs::read_to_string(examples().join("policies/never-drop-warnings.yaml")).unwrap();
    assert!(comment.contains(&format!("{before} Warnings were dropped")) && before > 100, "{before}");
    let replay = Replayed::of("never-drop-warnings");
    assert_eq!(replay.warnings(&dropped), 0);
    assert!(replay.warnings(&["admitted", "compacted"]) > 100 && replay.occurrences("throttled") > 100);
}

#[test]
fn observe_stores_every_write_and_counts_as_enforce() {
    let [observed, enforced] = <[Replayed; 2]>::try_from(replayed("observe-first")).ok().unwrap();
    let writes = |replay: &Replayed, of: &str| replay.report["total"]["writes"][of].as_u64().unwrap();
    assert_eq!(writes(&observed, "etcdWith"), writes(&observed, "etcdWithout"));
    assert!(writes(&enforced, "etcdWith") < writes(&enforced, "etcdWithout"));
    assert_eq!(observed.report["total"]["occurrences"], enforced.report["total"]["occurrences"]);
}

#[test]
fn in_kube_system_only_repeats_are_merged() {
    let replay = Replayed::of("kube-system");
    replay.drops_nothing();
    assert_eq!(replay.occurrences("aggregated"), 0);
    assert!(replay.occurrences("compacted") > 0);
}

#[test]
fn the_node_exemption_precedes_policies_in_default() {
    let [alone, protected] = <[Replayed; 2]>::try_from(replayed("cluster-scoped-objects")).ok().unwrap();
    let of_nodes = |replay: &Replayed, answer: &str| {
        let of_nodes =
            replay.writes.iter().filter(|(write, _)| write["object"]["involvedObject"]["kind"] == "Node");
        of_nodes.filter(|(_, decided)| decided["answer"] == answer).count()
    };
    let (passed, refused) = (of_nodes(&alone, "allow"), of_nodes(&alone, "409"));
    assert!(refused > 50, "{passed} {refused}");
    assert_eq!((of_nodes(&protected, "allow"), of_nodes(&protected, "409")), (passed + refused, 0));
    assert!(protected.occurrences("compacted") > 0, "Events about pods are compacted as before");
}

#[test]
fn each_kustomization_has_one_event_with_the_count_of_all_reconciliations() {
    let replay = Replayed::of("flux-reconciliations");
    replay.drops_nothing();
    let stored = replay.stored(about);
    assert_eq!(stored.len(), 40);
    assert!(stored.values().all(|names| names.len() == 1), "{stored:?}");
    assert_eq!(replay.occurrences("admitted"), 40);
    assert!(replay.occurrences("compacted") > 600);
}

#[test]
fn each_application_has_one_event_of_each_kind_with_the_newest_commit() {
    let replay = Replayed::of("argo-cd");
    replay.drops_nothing();
    let kind = |event: &Value| {
        let message = event["message"].as_str().unwrap().split(['\'', '>']).next().unwrap().to_owned();
        format!("{} {} {}", about(event), event["reason"], message.split(" to ").next().unwrap())
    };
    let stored = replay.stored(kind);
    // Both kinds of syncs, and for half of them the change of the health.
    assert_eq!(stored.len(), 40 * 2 + 20 * 2, "{stored:?}");
    assert!(stored.values().all(|names| names.len() == 1), "{stored:?}");
}

#[test]
fn each_blocked_node_and_its_claim_have_one_event_for_each_workload() {
    let replay = Replayed::of("karpenter");
    replay.drops_nothing();
    let workload = |event: &Value| {
        let message = event["message"].as_str().unwrap();
        if message.contains("batch/queue-") { "StatefulSet" } else { "Deployment" }
    };
    let stored = replay.stored(|event| format!("{} {}", about(event), workload(event)));
    assert!((80..=100).contains(&stored.len()), "{stored:?}");
    // A suffix of digits alone is a number, and not a hash: a second Event, for one pod in a thousand.
    let of_one_name = stored.values().filter(|names| names.len() == 1).count();
    assert!(of_one_name + 2 >= stored.len(), "{stored:?}");
}

#[test]
fn each_object_of_a_java_operator_has_one_event() {
    let replay = Replayed::of("java-operators");
    replay.drops_nothing();
    let stored = replay.stored(about);
    assert_eq!(stored.len(), 30);
    assert!(stored.values().all(|names| names.len() == 1), "{stored:?}");
    assert!(replay.warnings(&["compacted"]) > 100, "failures are compacted too");
}

#[test]
fn a_failed_zone_becomes_four_events_and_a_summary() {
    let replay = Replayed::of("node-not-ready");
    replay.drops_nothing();
    assert_eq!(replay.stored(about).len(), 4);
    let summaries = replay.report["summaries"].as_array().unwrap();
    assert_eq!(summaries.len(), 1, "{summaries:?}");
    assert!(summaries[0]["message"].as_str().unwrap().contains("on 240 objects"), "{summaries:?}");
    assert_eq!(replay.warnings(&["aggregated", "admitted", "compacted"]), replay.writes.len());
}

#[test]
fn only_the_failed_pulls_of_images_are_stored() {
    let replay = Replayed::of("image-pulls");
    for (write, decided) in &replay.writes {
        let (event, pulls) = (&write["object"], ["Pulling", "Pulled"]);
        let is_muted = pulls.iter().any(|reason| event["reason"] == *reason);
        assert_eq!(is_muted, decided["disposition"] == "muted", "{event}");
    }
    assert_eq!((replay.occurrences("muted"), replay.warnings(&["admitted"])), (90, 10));
}
