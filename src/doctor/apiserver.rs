//! The API server: its version, and what becomes of Event writes there.

use super::finding::Finding;
use super::seen::Seen;
use crate::OLDEST_KUBERNETES;
use crate::arming::EVENTS_ENTRY;

/// The verbs that write, as the API server's metrics call them.
const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "APPLY"];

pub(super) fn version(seen: &Seen) -> Vec<Finding> {
    let (major, minor, whole) = &seen.version;
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    let (oldest_major, oldest_minor) = OLDEST_KUBERNETES;
    vec![match (number(major), number(minor)) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KUBERNETES => Finding::error(
            "kubernetes",
            format!("Kubernetes {major}.{minor} drops the matchConditions of webhooks"),
            format!("upgrade to {oldest_major}.{oldest_minor} or newer"),
        ),
        _ => Finding::ok("kubernetes", format!("the API server is {}", super::finding::told(whole))),
    }]
}

/// What becomes of Event writes, by the counters of one API server since it started.
pub(super) fn writes(seen: &Seen) -> Vec<Finding> {
    match &seen.metrics {
        Err(unseen) => vec![Finding::unseen("fairness", "the API server's /metrics", unseen)],
        Ok(metrics) => vec![fairness(metrics), unreviewed(metrics)],
    }
}

fn fairness(metrics: &str) -> Finding {
    let refused: f64 = WRITES
        .iter()
        .map(|verb| {
            let labels = [("code", "429"), ("resource", "events"), ("verb", verb)];
            sum(metrics, "apiserver_request_total", &labels)
        })
        .sum();
    let queues = sum(metrics, "apiserver_flowcontrol_rejected_requests_total", &[]);
    let why = format!(
        "since the API server started it answered {refused} Event writes with 429; priority and fairness rejected \
         {queues} requests of all kinds"
    );
    if refused == 0.0 {
        return Finding::ok("fairness", why);
    }
    Finding::warning(
        "fairness",
        why,
        "see which flow schema in apiserver_flowcontrol_rejected_requests_total; writers that are slowed by a webhook \
         that hangs fill its queues",
    )
}

fn unreviewed(metrics: &str) -> Finding {
    let name = [("name", EVENTS_ENTRY)];
    let passed = sum(metrics, "apiserver_admission_webhook_fail_open_count", &name);
    if passed == 0.0 {
        return Finding::ok("unreviewed", "since the API server started it asked squelch in vain 0 times");
    }
    Finding::warning(
        "unreviewed",
        format!("since the API server started {passed} Event writes passed because squelch did not answer"),
        "nothing if that was while squelch was restarted; else see the API server's log under events.squelch.dev",
    )
}

/// The sum of all children of a metric that have these labels.
pub(super) fn sum(metrics: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let of_name = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let children = of_name.filter_map(|line| line.rsplit_once("} "));
    let wanted = children.filter(|(child, _)| {
        labels.iter().all(|(label, value)| {
            let label = format!("{label}=\"{value}\"");
            child.starts_with(&label) || child.contains(&format!(",{label}"))
        })
    });
    wanted.filter_map(|(_, value)| value.trim().parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::testing::well;
    use super::*;

    const METRICS: &str = r#"# HELP apiserver_request_total x
apiserver_request_total{code="201",resource="events",verb="POST"} 7000
apiserver_request_total{code="429",resource="events",verb="PATCH"} 3
apiserver_request_total{code="429",resource="events",verb="POST"} 4
apiserver_request_total{code="429",resource="events",verb="LIST"} 90
apiserver_request_total{code="429",resource="pods",verb="POST"} 90
apiserver_flowcontrol_rejected_requests_total{flow_schema="service-accounts",reason="queue-full"} 187
apiserver_admission_webhook_fail_open_count{name="other",type="admit"} 5
"#;

    #[test]
    fn only_refused_event_writes_count() {
        let mut seen = well();
        seen.metrics = Ok(METRICS.to_owned());
        let [fairness, unreviewed] = &writes(&seen)[..] else { panic!("two findings") };
        assert_eq!((fairness.level, unreviewed.level), (Level::Warning, Level::Ok));
        assert!(fairness.why.contains(" 7 Event writes") && fairness.why.contains(" 187 requests"));
    }

    #[test]
    fn an_old_api_server_is_an_error_and_a_strange_version_is_none() {
        let of = |major: &str, minor: &str| {
            let mut seen = well();
            seen.version = (major.to_owned(), minor.to_owned(), "v\u{7}1".to_owned());
            version(&seen).remove(0)
        };
        assert_eq!(of("1", "29+").level, Level::Error);
        assert_eq!(of("1", "30").level, Level::Ok);
        assert_eq!(of("", "x"), Finding::ok("kubernetes", "the API server is v1"));
    }
}
