//! Names and namespaces of Events in the path of a call.

use super::*;

#[tokio::test(start_paused = true)]
async fn no_call_is_made_for_an_invalid_event_name() {
    for name in ["../../other/events/theirs", "a%2Fb", "..", "."] {
        let mut scene = Scene::new();
        scene.decide(&named(name, write()));
        scene.merge();
        tokio::time::advance(2 * SECOND).await;
        let outcome = scene.attempt(|_, _| None).await;
        assert_eq!(outcome.refusal, Some(Refusal::Invalid), "{name}");
        assert!(scene.server.requests.is_empty(), "{:?}", scene.server.requests);
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_for_an_invalid_namespace() {
    for namespace in ["squelch/pods/POD?a=", "..", "%2e%2e", "", "a#b"] {
        let mut scene = Scene::new();
        for name in ["cart.1", "cart.2"] {
            scene.decide(&Observation { namespace, ..named(name, write()) });
        }
        tokio::time::advance(2 * SECOND).await;
        let outcome = scene.attempt(|_, _| None).await;
        assert_eq!(outcome.refusal, Some(Refusal::Invalid), "{namespace}");
        assert!(scene.server.requests.is_empty(), "{:?}", scene.server.requests);
        assert_eq!((scene.lost(), scene.engine.gauges().pending_occurrences), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_name_is_escaped_as_one_path_segment() {
    for name in ["a?dryRun=All", "a#b", "a b", "ü"] {
        let mut scene = Scene::new();
        scene.decide(&named(name, write()));
        scene.server.store_count(name, 1);
        scene.merge();
        tokio::time::advance(2 * SECOND).await;
        scene.flush_until_done().await;
        assert_eq!(
            (scene.server.count(name), scene.engine.gauges().pending_occurrences),
            (Some(2), 0),
            "{name}"
        );
    }
}
