//! The rate of flushes, failing API servers, and the shutdown.

use super::*;

/// This many Events, each of which shows 1 and has one pending occurrence that is due.
async fn with_pending_events(events: usize) -> Scene {
    let mut scene = Scene::new();
    for number in 0..events {
        for name in [format!("e.{number}"), format!("e.{number}.again")] {
            let mut story = named(&name, write());
            story.event.message = number.to_string().into();
            scene.decide(&Observation { name: Some(name.clone().into()), ..story });
        }
        scene.server.store_count(&format!("e.{number}"), 1);
    }
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(scene.engine.gauges().pending_series, events);
    scene
}

/// Flushes for this long, as the operator does. `reply` is asked first, with the second of the call.
async fn flush_for(
    scene: &mut Scene,
    limits: FlushLimits,
    time: Duration,
    reply: impl Fn(u64) -> Option<Reply>,
) {
    let (stop, began) = (CancellationToken::new(), clock::now());
    let flushing = run(scene.writer.clone(), limits, stop.clone());
    let serving = scene.server.serve(&mut scene.calls, |_, _| reply(clock::now().since(began).as_secs()));
    let ending = async {
        tokio::time::sleep(time).await;
        stop.cancel();
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(flushing, ending) } => {}
        () = serving => panic!("the client is gone"),
    }
}

#[tokio::test(start_paused = true)]
async fn flushes_stay_within_the_rate_limit() {
    let mut scene = with_pending_events(300).await;
    flush_for(&mut scene, limits(20), 5 * SECOND, |_| None).await;
    // The limiter allows a burst of one second.
    let attempts = scene.flushes(FlushResult::Written);
    assert!((110..=121).contains(&attempts), "{attempts} flushes in 5 s");
    assert_eq!(scene.engine.gauges().pending_series as u64, 300 - attempts);
}

#[tokio::test(start_paused = true)]
async fn a_failing_api_server_is_called_rarely_and_everything_is_flushed_when_it_recovers() {
    let mut scene = with_pending_events(200).await;
    flush_for(&mut scene, limits(20), 120 * SECOND, |second| (second < 60).then(|| status(503))).await;
    let began = scene.server.requests[0].0;
    let while_broken = scene.server.requests.iter().filter(|(at, _)| at.since(began).as_secs() < 60).count();
    // Eight at a time, after pauses of 1, 2, 4, 8, 16 and 30 s.
    assert!(while_broken <= 60, "{while_broken} calls to a broken API server in a minute");
    assert_eq!((scene.engine.gauges().pending_occurrences, scene.lost()), (0, 0));
    assert!((0..200).all(|number| scene.server.count(&format!("e.{number}")) == Some(2)));
}

#[tokio::test(start_paused = true)]
async fn retry_after_pauses_all_flushes() {
    let mut scene = with_pending_events(50).await;
    let busy = Reply::Status(429, json!("Too many requests, please try again later."), Some(15));
    flush_for(&mut scene, limits(20), 40 * SECOND, |second| (second == 0).then(|| busy.clone())).await;
    let began = scene.server.requests[0].0;
    let seconds = scene.server.requests.iter().map(|(at, _)| at.since(began).as_secs());
    assert!(seconds.clone().all(|second| second == 0 || second >= 15), "{:?}", seconds.collect::<Vec<_>>());
    assert_eq!(scene.engine.gauges().pending_occurrences, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_flush_delays_no_other_event() {
    let mut scene = with_pending_events(100).await;
    let broken = |asked: &str| asked.contains("/e.7?").then(|| status(500));
    let stop = CancellationToken::new();
    let writer = scene.writer.clone();
    tokio::select! {
        () = run(writer, limits(20), stop) => panic!("run ended by itself"),
        () = scene.server.serve(&mut scene.calls, |_, asked| broken(asked)) => panic!("the client is gone"),
        () = tokio::time::sleep(10 * SECOND) => {}
    }
    assert_eq!((scene.engine.gauges().pending_series, scene.server.count("e.7")), (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_five_thousand_events_are_flushed_in_ten_seconds() {
    let mut scene = with_pending_events(5000).await;
    scene.engine.drain();
    let before = clock::now();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let is_done = tokio::select! {
        is_done = flush_all(scene.writer.clone(), limits, 30 * SECOND) => is_done,
        () = scene.server.serve(&mut scene.calls, |_, _| None) => panic!("the client is gone"),
    };
    assert!(is_done && scene.engine.unflushed() == 0);
    assert!(clock::now().since(before) < 10 * SECOND, "{:?}", clock::now().since(before));
}

#[tokio::test(start_paused = true)]
async fn occurrences_not_flushed_at_shutdown_are_counted_per_namespace() {
    let mut scene = with_pending_events(40).await;
    scene.engine.drain();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let is_done = tokio::select! {
        is_done = flush_all(scene.writer.clone(), limits, 5 * SECOND) => is_done,
        () = scene.server.serve(&mut scene.calls, |call, _| (call > 20).then_some(Reply::Nothing)) => true,
    };
    assert!(!is_done);
    let left = scene.engine.gauges().pending_occurrences;
    assert!((30..=40).contains(&left), "{left}");
    assert_eq!(scene.engine.discard_pending(), [("shop".into(), left)]);
    assert_eq!(
        (scene.lost(), scene.engine.gauges().pending_occurrences, scene.engine.gauges().pending_series),
        (left, 0, 0)
    );
    assert_eq!(scene.engine.discard_pending(), [], "once");
}

/// One answer asks for a minute during the shutdown.
#[tokio::test(start_paused = true)]
async fn one_retry_after_at_shutdown_does_not_prevent_the_other_flushes() {
    let mut scene = with_pending_events(500).await;
    scene.engine.drain();
    let limits = FlushLimits::at_shutdown(NonZeroU32::new(500).unwrap());
    let busy = Reply::Status(503, json!("no endpoints"), Some(60));
    let one = |asked: &str| (asked.contains("/e.490?") || asked.ends_with("/e.490")).then(|| busy.clone());
    tokio::select! {
        _is_done = flush_all(scene.writer.clone(), limits, 30 * SECOND) => {}
        () = scene.server.serve(&mut scene.calls, |_, asked| one(asked)) => panic!("the client is gone"),
    }
    let left = scene.engine.gauges().pending_occurrences;
    assert!(left <= 1, "{left} of 500 are lost, of which the API server would have taken 499 at once");
}
