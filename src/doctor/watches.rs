//! Checks that each replica follows the policies and the namespaces.

use super::apiserver::sum;
use super::finding::{Finding, printable};
use super::snapshot::{Snapshot, Unreadable};
use crate::metrics::WatchedResource;
use crate::metrics::table::WATCH_LAST_RESPONSE;

/// Maximum time without a response, in seconds. A healthy watch gets one per minute; a restarted watch, after one or
/// two minutes.
const LONGEST: i64 = 300;

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let pods = match &snapshot.scraped {
        Ok(pods) => pods,
        // Without a Deployment the metrics port of squelch is unknown.
        Err(Unreadable::Missing) => return Vec::new(),
        Err(unreadable) => return vec![Finding::unreadable("watches", "the pods of squelch", unreadable)],
    };
    let (mut stale, mut found) = (Vec::new(), Vec::new());
    for (pod, metrics) in pods {
        let metrics = match metrics {
            Ok(metrics) => metrics,
            Err(unreadable) => {
                let thing = format!("the metrics of the pod {} (pods/proxy)", printable(pod));
                found.push(Finding::unreadable("watches", &thing, unreadable));
                continue;
            }
        };
        for resource in WatchedResource::ALL {
            let last = sum(metrics, WATCH_LAST_RESPONSE.name, &[("resource", resource.as_str())]);
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let silent = snapshot.at.as_second() - last as i64;
            if last == 0.0 {
                stale.push(format!("{} of {} never", resource.as_str(), printable(pod)));
            } else if silent > LONGEST {
                stale.push(format!("{} of {} {silent} s ago", resource.as_str(), printable(pod)));
            }
        }
    }
    if !stale.is_empty() {
        let message = format!(
            "changes of policies or of the webhook configuration are not processed; last response to a watch: {}",
            stale.join(", ")
        );
        let remedy = "see the log of that pod and docs/runbooks.md#squelchwatchstale";
        found.push(Finding::error("watches", message, remedy));
    }
    if found.is_empty() {
        let message = format!("the lists and watches of {} pods are current", pods.len());
        found.push(Finding::ok("watches", message));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::fixtures::{healthy, scrape};
    use super::*;

    fn found(change: impl FnOnce(&mut Snapshot)) -> Vec<Finding> {
        let mut snapshot = healthy();
        change(&mut snapshot);
        findings(&snapshot)
    }

    #[test]
    fn a_stale_watch_is_an_error_that_names_its_pod() {
        assert_eq!(found(|_| {})[0].level, Level::Ok);
        let stale = &found(|snapshot| snapshot.scraped.as_mut().unwrap()[1].1 = Ok(scrape(301)))[0];
        assert!(
            stale.level == Level::Error && stale.message.contains("namespaces of squelch-b 301 s ago"),
            "{stale}"
        );
        let never = &found(|snapshot| snapshot.scraped.as_mut().unwrap()[0].1 = Ok(String::new()))[0];
        assert!(never.message.contains("eventpolicies of squelch-a never"), "{never}");
    }

    #[test]
    fn an_unreadable_pod_does_not_hide_a_stale_one() {
        let both = found(|snapshot| {
            let pods = snapshot.scraped.as_mut().unwrap();
            pods[0].1 = Err(Unreadable::Failed("connection refused".to_owned()));
            pods[1].1 = Ok(scrape(301));
        });
        let levels: Vec<_> = both.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Warning, Level::Error], "{both:?}");
    }

    #[test]
    fn a_missing_permission_is_no_error() {
        let forbidden =
            found(|snapshot| snapshot.scraped.as_mut().unwrap()[1].1 = Err(Unreadable::Forbidden));
        assert_eq!(forbidden.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Level::Warning]);
        assert!(found(|snapshot| snapshot.scraped = Err(Unreadable::Missing)).is_empty());
    }
}
