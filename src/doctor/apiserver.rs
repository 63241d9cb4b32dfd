//! Checks of the API server: its version, and the results of Event writes.

use super::finding::Finding;
use super::snapshot::Snapshot;
use crate::OLDEST_KUBERNETES;
use crate::arming::EVENTS_ENTRY;

/// The verbs of writes in the API server's metrics.
const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "APPLY"];

pub(super) fn version(snapshot: &Snapshot) -> Vec<Finding> {
    let (major, minor, whole) = &snapshot.version;
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    let (oldest_major, oldest_minor) = OLDEST_KUBERNETES;
    vec![match (number(major), number(minor)) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KUBERNETES => Finding::error(
            "kubernetes",
            format!(
                "Kubernetes {major}.{minor} is not supported: it ignores the matchConditions of webhooks"
            ),
            format!("upgrade Kubernetes to {oldest_major}.{oldest_minor} or newer"),
        ),
        _ => Finding::ok(
            "kubernetes",
            format!("the API server has version {}", super::finding::printable(whole)),
        ),
    }]
}

/// Checks the results of Event writes, by the counters of one API server since its start.
pub(super) fn writes(snapshot: &Snapshot) -> Vec<Finding> {
    match &snapshot.metrics {
        Err(unreadable) => vec![Finding::unreadable("fairness", "/metrics of the API server", unreadable)],
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
    let message = format!(
        "the API server has refused {refused} Event writes with 429 since its start; priority and fairness \
         rejected {queues} requests in total"
    );
    if refused == 0.0 {
        return Finding::ok("fairness", message);
    }
    Finding::warning(
        "fairness",
        message,
        "find the flow schema in apiserver_flowcontrol_rejected_requests_total; clients slowed down by a webhook that \
         does not answer fill its queues",
    )
}

fn unreviewed(metrics: &str) -> Finding {
    let name = [("name", EVENTS_ENTRY)];
    let passed = sum(metrics, "apiserver_admission_webhook_fail_open_count", &name);
    if passed == 0.0 {
        return Finding::ok(
            "unreviewed",
            "squelch has answered every review of the API server since its start",
        );
    }
    Finding::warning(
        "unreviewed",
        format!(
            "the API server has stored {passed} Event writes without a review since its start, because squelch did not \
             answer"
        ),
        "if squelch was not restarted meanwhile, search the log of the API server for events.squelch.dev",
    )
}

/// Returns the sum of all series of a metric that have these labels.
pub(super) fn sum(metrics: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let of_name = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let children = of_name.filter_map(|line| line.rsplit_once("} "));
    let wanted = children.filter(|(child, _)| {
        labels.iter().all(|(label, value)| {
            let label = format!("{label}=\"{value}\"");
            child.starts_with(&label) || child.contains(&format!(",{label}"))
        })
    });
    // `Iterator::sum` of nothing is -0.
    wanted.filter_map(|(_, value)| value.trim().parse::<f64>().ok()).fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::fixtures::healthy;
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
        let mut snapshot = healthy();
        snapshot.metrics = Ok(METRICS.to_owned());
        let [fairness, unreviewed] = &writes(&snapshot)[..] else { panic!("two findings") };
        assert_eq!((fairness.level, unreviewed.level), (Level::Warning, Level::Ok));
        assert!(fairness.message.contains(" 7 Event writes") && fairness.message.contains(" 187 requests"));
    }

    #[test]
    fn an_api_server_without_refusals_has_refused_0_writes() {
        let mut snapshot = healthy();
        snapshot.metrics = Ok(String::new());
        let fairness = writes(&snapshot).remove(0);
        assert!(
            fairness.message.contains("refused 0 Event writes")
                && fairness.message.contains("rejected 0 requests")
        );
    }

    #[test]
    fn an_old_api_server_is_an_error_and_an_unknown_version_is_not() {
        let of = |major: &str, minor: &str| {
            let mut snapshot = healthy();
            snapshot.version = (major.to_owned(), minor.to_owned(), "v\u{7}1".to_owned());
            version(&snapshot).remove(0)
        };
        assert_eq!(of("1", "29+").level, Level::Error);
        assert_eq!(of("1", "30").level, Level::Ok);
        assert_eq!(of("", "x"), Finding::ok("kubernetes", "the API server has version v1"));
    }
}
