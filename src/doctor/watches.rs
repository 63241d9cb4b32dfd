//! Whether each replica still follows the policies and the namespaces.

use super::apiserver::sum;
use super::finding::{Finding, told};
use super::seen::{Seen, Unseen};
use crate::metrics::WatchedResource;
use crate::metrics::table::WATCH_LAST_RESPONSE;

/// A healthy watch gets something each minute; one that is started again, after a minute or two.
const LONGEST: i64 = 300;

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let pods = match &seen.scraped {
        Ok(pods) => pods,
        // Outside of a Deployment nobody knows where squelch serves its metrics.
        Err(Unseen::Missing) => return Vec::new(),
        Err(unseen) => return vec![Finding::unseen("watches", "the pods of squelch", unseen)],
    };
    let mut stale = Vec::new();
    for (pod, metrics) in pods {
        let metrics = match metrics {
            Ok(metrics) => metrics,
            Err(unseen) => {
                let thing = format!("the metrics of the pod {} (pods/proxy)", told(pod));
                return vec![Finding::unseen("watches", &thing, unseen)];
            }
        };
        for resource in WatchedResource::ALL {
            let last = sum(metrics, WATCH_LAST_RESPONSE.name, &[("resource", resource.as_str())]);
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let silent = seen.at.as_second() - last as i64;
            if last == 0.0 {
                stale.push(format!("{} of {} never", resource.as_str(), told(pod)));
            } else if silent > LONGEST {
                stale.push(format!("{} of {} {silent} s ago", resource.as_str(), told(pod)));
            }
        }
    }
    if stale.is_empty() {
        let why = format!("the API server has answered each list and watch of {} pods", pods.len());
        return vec![Finding::ok("watches", why)];
    }
    let why = format!("policies are not followed; last answer: {}", stale.join(", "));
    vec![Finding::error("watches", why, "see the log of that pod; docs/runbooks.md#squelchwatchstale")]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::testing::{scrape, well};
    use super::*;

    fn found(change: impl FnOnce(&mut Seen)) -> Vec<Finding> {
        let mut seen = well();
        change(&mut seen);
        findings(&seen)
    }

    #[test]
    fn a_watch_without_an_answer_is_an_error_of_its_pod() {
        assert_eq!(found(|_| {})[0].level, Level::Ok);
        let stale = &found(|seen| seen.scraped.as_mut().unwrap()[1].1 = Ok(scrape(301)))[0];
        assert!(
            stale.level == Level::Error && stale.why.contains("namespaces of squelch-b 301 s ago"),
            "{stale}"
        );
        let never = &found(|seen| seen.scraped.as_mut().unwrap()[0].1 = Ok(String::new()))[0];
        assert!(never.why.contains("eventpolicies of squelch-a never"), "{never}");
    }

    #[test]
    fn what_may_not_be_read_is_no_error() {
        let forbidden = &found(|seen| seen.scraped.as_mut().unwrap()[1].1 = Err(Unseen::Forbidden))[0];
        assert_eq!(forbidden.level, Level::Warning);
        assert!(found(|seen| seen.scraped = Err(Unseen::Missing)).is_empty());
    }
}
