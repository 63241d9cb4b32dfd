//! Conditions and counters share the rate of writes.

use super::*;

#[test]
fn counters_are_written_before_conditions_at_exit() {
    let mut scene = Scene::new(&["a", "p"]);
    scene.counters = vec![counters("p", Mode::Enforce, 1)];
    let all = scene.plan.all(&scene.set, &scene.counters, &scene.armed, Timestamp::UNIX_EPOCH);
    assert_eq!(all.iter().map(|due| &*due.policy.name).collect::<Vec<_>>(), ["p", "a"]);
}

#[test]
fn condition_changes_do_not_starve_counters() {
    let mut scene = Scene::new(&["victim", "h0", "h1", "h2", "h3", "h4"]);
    scene.write(0);
    let mut written = 0;
    for second in 1..=60 {
        scene.edit(|name| name.starts_with('h'));
        scene.counters = vec![counters("victim", Mode::Enforce, second)];
        for due in scene.due(second).into_iter().take(5) {
            written += usize::from(&*due.policy.name == "victim");
            scene.plan.attempted(due, true, after(second));
        }
    }
    assert!(written >= 3, "{written} writes in a minute");
}

/// Computes the due statuses and writes one every 200 ms, the rate of `--status-qps 5`, while policies are edited. Returns
/// the times of the writes in milliseconds, by policy name.
fn writes_under_load(
    scene: &mut Scene,
    seconds: u64,
    mut before_each: impl FnMut(&mut Scene, u64),
) -> HashMap<String, Vec<u64>> {
    let mut written: HashMap<String, Vec<u64>> = HashMap::new();
    for step in 0..seconds * 5 {
        let millisecond = step * 200;
        before_each(scene, millisecond);
        let now = Moment::from_epoch(Duration::from_millis(millisecond));
        let due = scene.plan.due(&scene.set, &scene.counters, &scene.armed, now, Timestamp::UNIX_EPOCH);
        let Some(due) = due.into_iter().next() else { continue };
        written.entry(due.policy.name.to_string()).or_default().push(millisecond);
        scene.plan.attempted(due, true, now);
    }
    written
}

fn longest_gap(times: &[u64]) -> u64 {
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
}

/// 50 policies with counters every 10 s use the whole rate of 5 writes per second.
#[test]
fn counters_are_written_within_two_intervals_regardless_of_edits() {
    let busy_ones: Vec<String> = (0..50).map(|number| format!("busy{number}")).collect();
    let edited: Vec<String> = (0..200).map(|number| format!("edited{number}")).collect();
    let names: Vec<&str> = busy_ones.iter().chain(&edited).map(String::as_str).collect();
    let mut scene = Scene::new(&names);
    scene.write(0);
    let written = writes_under_load(&mut scene, 120, |scene, millisecond| {
        if millisecond % 1000 == 0 {
            // One of the busy policies has changed conditions too, which wait behind those of many others.
            scene.edit(|name| name.starts_with("edited") || name == "busy7");
            let scope = |name: &String| counters(name, Mode::Enforce, millisecond + 1);
            scene.counters = busy_ones.iter().map(scope).collect();
        }
    });
    for name in &busy_ones {
        let since_all_were_written: Vec<u64> = [0].iter().chain(&written[name]).copied().collect();
        let gap = longest_gap(&since_all_were_written);
        assert!(gap <= 20_000, "{name}: {gap} ms");
    }
    let condition_writes: usize =
        written.iter().filter(|(name, _)| name.starts_with("edited")).map(|(_, times)| times.len()).sum();
    assert!(condition_writes >= 200, "{condition_writes} writes of conditions in 600");
}

/// The counters need twice the rate.
#[test]
fn too_many_counters_do_not_starve_conditions() {
    let names: Vec<String> = (0..100).map(|number| format!("busy{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["edited"]).collect();
    let mut scene = Scene::new(&names);
    scene.write(0);
    let written = writes_under_load(&mut scene, 60, |scene, millisecond| {
        if millisecond % 1000 == 0 {
            scene.edit(|name| name == "edited");
            let scope = |name: &&str| counters(name, Mode::Enforce, millisecond + 1);
            scene.counters = names.iter().map(scope).collect();
        }
    });
    let gap = longest_gap(&written["edited"]);
    assert!(gap <= 2_000, "edited each second, written after {gap} ms");
}

/// A user who edits, deletes and creates policies in one namespace delays only the statuses of that namespace.
#[test]
fn conditions_of_one_namespace_do_not_delay_those_of_others() {
    let mut scene = Scene::new(&[]);
    let mut created = 0;
    let other = policy("shop", "other", &json!({}), 0);
    let written = writes_under_load(&mut scene, 60, |scene, millisecond| {
        // Each time there are 20 policies without a status.
        created += 20;
        let names = (created - 20..created).map(|number| format!("fresh{number}"));
        let generation = i64::try_from(millisecond / 1000).unwrap();
        let other = Arc::new(Policy { generation, ..(*other).clone() });
        let fresh: Vec<_> = names.map(|name| policy("ci", &name, &json!({}), 0)).collect();
        scene.set = Set::new(fresh.into_iter().chain([other]));
    });
    let gap = longest_gap(&written["other"]);
    assert!(gap <= 2_000, "edited each second, written after {gap} ms");
}

/// A user who creates a thousand policies does not delay the counters of others. The API server adds the default status
/// to each.
#[test]
fn first_statuses_do_not_delay_counters() {
    let mut scene = Scene::new(&["victim"]);
    scene.write(0);
    let fresh: Vec<_> =
        (0..1_000).map(|number| policy("a", &format!("fresh{number}"), &json!({}), 1)).collect();
    scene.set = Set::new(scene.set.policies().iter().cloned().chain(fresh).collect::<Vec<_>>());
    let written = writes_under_load(&mut scene, 60, |scene, millisecond| {
        scene.counters = vec![counters("victim", Mode::Enforce, millisecond + 1)];
    });
    let times: Vec<u64> = [0].iter().chain(written.get("victim").into_iter().flatten()).copied().collect();
    assert!(times.len() > 4 && longest_gap(&times) <= 20_000, "{times:?}");
}
