//! Two replicas, and a person or another writer who changes the Lease.

use super::*;

/// For how long of the next ten seconds both replicas are active, checked each 10 ms.
async fn both_active(one: &Scene, other: &Scene) -> Duration {
    let step = Duration::from_millis(10);
    let mut both = Duration::ZERO;
    for _ in 0..1_000 {
        tokio::time::sleep(step).await;
        let now = clock::now();
        if one.deadline.is_active(now) && other.deadline.is_active(now) {
            both += step;
        }
    }
    both
}

#[tokio::test(start_paused = true)]
async fn two_replicas_are_never_active_while_a_person_edits_the_holder() {
    let mut found = Vec::new();
    for holder in ["", "b_0000000000000007", "b_somebody"] {
        let server = ApiServer::default();
        let mut one = Scene::new(&server, "a");
        one.is_active(true).await;
        let other = Scene::new(&server, "b");
        tokio::time::sleep(Duration::from_millis(10_100)).await;
        {
            let mut state = server.lock().unwrap();
            let mut lease = state.lease.clone().unwrap();
            lease["spec"]["holderIdentity"] = json!(holder);
            state.write(lease, 200);
        }
        found.push((holder, both_active(&one, &other).await));
        let active = u32::from(*one.active.borrow()) + u32::from(*other.active.borrow());
        assert_eq!(active, 1, "{holder:?}");
        one.stop.cancel();
        other.stop.cancel();
    }
    assert!(found.iter().all(|(_, both)| both.is_zero()), "two replicas are active for {found:?}");
}

#[tokio::test(start_paused = true)]
async fn two_replicas_are_never_active_while_the_lease_is_deleted_and_a_replica_starts() {
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    server.lock().unwrap().lease = None;
    let other = Scene::new(&server, "b");
    let both = both_active(&one, &other).await;
    assert!(both.is_zero(), "two replicas are active for {both:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_missed_another_holder_is_not_active_again() {
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    server.lock().unwrap().refuses = Some(500);
    one.is_active(false).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    {
        // Meanwhile another replica has acquired and released it.
        let mut state = server.lock().unwrap();
        let mut lease = state.lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = json!("");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        state.write(lease, 200);
        state.refuses = None;
    }
    let again = tokio::time::timeout(Duration::from_secs(10), one.is_active(true)).await;
    assert!(again.is_err() && one.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn no_replica_takes_over_during_the_last_writes_of_a_shutdown() {
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    let mut other = Scene::new(&server, "b");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let deadline = one.deadline.clone();
    let mut leader = one.end().await;
    leader.deactivate();
    let last_writes = async {
        for _ in 0..120 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!*other.active.borrow() && !deadline.is_active(clock::now()));
        }
    };
    tokio::select! { () = last_writes => {}, never = leader.keep() => match never {} }
    leader.release().await;
    let took = tokio::time::timeout(Duration::from_secs(1), other.is_active(true)).await;
    assert!(took.is_ok(), "it was not released");
}

#[tokio::test(start_paused = true)]
async fn a_standby_acquires_the_lease_although_another_writer_annotates_it() {
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    let other = Scene::new(&server, "b");
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The active replica crashes.
    one.leading.abort();
    let began = clock::now();
    let mut steps = 0_u32;
    while !*other.active.borrow() && clock::now().since(began) < Duration::from_secs(3_600) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        steps += 1;
        if steps.is_multiple_of(30) {
            let mut state = server.lock().unwrap();
            let mut lease = state.lease.clone().unwrap();
            lease["metadata"]["annotations"]["seen"] = json!(steps.to_string());
            state.write(lease, 200);
        }
    }
    let took = clock::now().since(began);
    assert!(took < Duration::from_secs(7), "no replica is active for {took:?}");
}
