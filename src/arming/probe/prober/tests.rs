use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::tls::{AcceptedTokens, PathToken};
use crate::{PROBE_ANNOTATION, PROBE_SIGNATURE_ANNOTATION};

fn report(result: ProbeResult) -> ProbeReport {
    ProbeReport { result, message: result.as_str().to_owned() }
}

#[test]
fn the_message_of_the_last_failure_is_published_and_an_inconclusive_one_is_not() {
    let (unreachable, mut receiver) = watch::channel(Some(NOT_PROBED.to_owned()));
    let mut history = History::default();
    let mut record = |result| {
        history.record(&report(result), &unreachable);
        let changed = receiver.has_changed().unwrap();
        (changed, receiver.borrow_and_update().clone())
    };
    use ProbeResult::{ServerError, Succeeded, Timeout, Unsigned};
    assert_eq!(record(Unsigned), (true, Some("unsigned".to_owned())));
    assert_eq!(record(Unsigned), (false, Some("unsigned".to_owned())));
    assert_eq!((record(Succeeded).0, record(Succeeded).0, record(Succeeded)), (false, false, (true, None)));
    assert_eq!(record(Timeout), (false, None));
    assert_eq!(record(ServerError), (false, None));
    assert_eq!(record(Timeout), (true, Some("timeout".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_exposes_the_token() {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let token = PathToken::generate().unwrap();
    let tokens = Arc::new(AcceptedTokens::new(vec![token.clone()]));
    let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens.clone());
    let ((_exists, exists), (_is_active, active)) = (watch::channel(true), watch::channel(true));
    let (prober, status) = Prober::new(probe, exists, active, Arc::new(Metrics::new()));
    let mut exposed = prober.exposed();
    let stop = CancellationToken::new();
    let running = tokio::spawn(prober.run(stop.clone()));
    let _unanswered = server.next_request().await.unwrap();
    status.reset();
    let (request, second) = server.next_request().await.unwrap();
    assert_eq!(*exposed.borrow(), None, "not before a probe succeeds");
    let body = request.into_body().collect_bytes().await.unwrap();
    let mut event: Value = serde_json::from_slice(&body).unwrap();
    let nonce = event["metadata"]["annotations"][PROBE_ANNOTATION].as_str().unwrap();
    let signature = tokens.sign(token.reveal(), nonce).unwrap();
    event["metadata"]["annotations"][PROBE_SIGNATURE_ANNOTATION] = json!(signature);
    let body = Body::from(event.to_string().into_bytes());
    second.send_response(Response::builder().status(201).body(body).unwrap());
    let seen = tokio::time::timeout(INTERVAL, exposed.wait_for(Option::is_some)).await;
    assert!(seen.is_ok_and(|seen| seen.is_ok()));
    stop.cancel();
    running.await.unwrap();
}

#[test]
fn without_descriptors_the_active_replica_disarms_and_a_standby_does_not() {
    let (unreachable, receiver) = watch::channel(None);
    let mut history = History { active: true, ..History::default() };
    for _ in 0..FAILURE_THRESHOLD {
        history.record(&report(ProbeResult::NoDescriptors), &unreachable);
    }
    assert!(history.is_failing());
    assert_eq!(receiver.borrow().as_deref(), Some("no_descriptors"));
    let mut standby = History::default();
    for _ in 0..10 {
        standby.record(&report(ProbeResult::NoDescriptors), &unreachable);
    }
    assert!(!standby.is_failing());
}

#[tokio::test]
async fn the_prober_ends_when_the_sender_of_the_active_state_is_dropped() {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let tokens = Arc::new(AcceptedTokens::new(Vec::new()));
    let probe = Probe::new(Client::new(service, "default"), "squelch".to_owned(), tokens);
    let ((_exists, exists), (is_active, active)) = (watch::channel(true), watch::channel(true));
    let (prober, _status) = Prober::new(probe, exists, active, Arc::new(Metrics::new()));
    let running = tokio::spawn(prober.run(CancellationToken::new()));
    let (_, first) = server.next_request().await.unwrap();
    drop(is_active);
    first.send_response(Response::builder().status(429).body(Body::empty()).unwrap());
    assert!(server.next_request().await.is_none(), "no more probes");
    running.await.unwrap();
}

#[test]
fn the_first_probes_are_quick() {
    let (unreachable, _receiver) = watch::channel(None);
    let active = || History { active: true, ..History::default() };
    let mut history = active();
    let mut pauses = Vec::new();
    for _ in 0..QUICK_PROBES {
        history.record(&report(ProbeResult::Unsigned), &unreachable);
        pauses.push(history.interval());
    }
    assert_eq!((pauses[0], pauses.pop()), (QUICK_INTERVAL, Some(INTERVAL)));
    let mut history = active();
    let pauses = [ProbeResult::Succeeded; 3].map(|result| {
        history.record(&report(result), &unreachable);
        history.interval()
    });
    assert_eq!(pauses, [QUICK_INTERVAL, QUICK_INTERVAL, INTERVAL]);
    let mut standby = History::default();
    standby.record(&report(ProbeResult::Succeeded), &unreachable);
    assert_eq!(standby.interval(), INTERVAL, "a standby sends no quick probes");
}

#[test]
fn after_a_takeover_reachability_stays_confirmed_until_two_failures() {
    let (unreachable, _receiver) = watch::channel(None);
    let mut history = History::default();
    let record = |history: &mut History, results: &[ProbeResult]| {
        results.iter().for_each(|result| history.record(&report(*result), &unreachable));
    };
    use ProbeResult::{ServerError, Succeeded, Unsigned};
    record(&mut history, &[Succeeded, Succeeded, Succeeded, Unsigned]);
    history.take_over();
    record(&mut history, &[Unsigned]);
    assert!(history.reachability.is_confirmed() && !history.is_failing());
    record(&mut history, &[ServerError, Unsigned]);
    assert!(!history.reachability.is_confirmed() && history.is_failing());
    history.take_over();
    history.active = true;
    assert_eq!((history.interval(), history.is_failing()), (QUICK_INTERVAL, false));
}
