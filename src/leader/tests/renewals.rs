//! Renewals that are late, conflict or fail.

use super::*;

/// Number of checks, one each 10 ms of `time`, at which the replica is inactive.
async fn inactive_checks(scene: &Scene, time: Duration) -> usize {
    let (began, mut inactive) = (clock::now(), 0);
    while clock::now().since(began) < time {
        inactive += usize::from(!scene.deadline.is_active(clock::now()) || !*scene.active.borrow());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    inactive
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_lease_was_deleted_and_cannot_be_written_becomes_inactive() {
    let server = ApiServer::default();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    {
        let mut state = server.lock().unwrap();
        (state.lease, state.refuses_writes) = (None, Some(500));
        state.slow = Slow { reads: Duration::from_millis(800), ..Slow::default() };
    }
    scene.is_active(false).await;
    assert!(
        !scene.lost.is_cancelled(),
        "its tasks wrote as those of the active replica until it stepped down"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_after_1200_ms_extends_the_deadline() {
    let late = Duration::from_millis(1_200);
    let cases = [
        Slow { writes: late, ..Slow::default() },
        Slow { writes: late, commits_late: true, ..Slow::default() },
        Slow { writes: late, reads: late, ..Slow::default() },
        Slow { writes: Duration::from_secs(3_600), ..Slow::default() },
        Slow { disconnects: true, ..Slow::default() },
    ];
    let mut found = Vec::new();
    for slow in cases {
        let server = ApiServer::default();
        let mut scene = Scene::new(&server, "a");
        scene.is_active(true).await;
        let revision = server.lock().unwrap().revision;
        server.lock().unwrap().slow = slow;
        let inactive = inactive_checks(&scene, Duration::from_secs(60)).await;
        let renewals = server.lock().unwrap().revision - revision;
        found.push((inactive, renewals));
        assert_eq!(server.lock().unwrap().holder(), "a_0000000000000007");
    }
    assert!(found.iter().all(|(inactive, renewals)| *inactive == 0 && *renewals >= 40), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_resource_version_by_another_writer_confirms_no_renewal() {
    let server = ApiServer::default();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    let began = clock::now();
    // No write of this replica reaches the API server, and another writer annotates the Lease each 100 ms.
    server.lock().unwrap().slow =
        Slow { writes: Duration::from_secs(3_600), commits_late: true, ..Slow::default() };
    while *scene.active.borrow() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut state = server.lock().unwrap();
        let lease = state.lease.clone().unwrap();
        state.write(lease, 200);
        assert!(clock::now().since(began) < Duration::from_secs(5), "still active after 5 s");
    }
    assert!(!scene.deadline.is_active(clock::now()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_last_renewal_had_no_answer_is_released() {
    let server = ApiServer::default();
    let mut scene = Scene::new(&server, "a");
    scene.is_active(true).await;
    server.lock().unwrap().slow = Slow { writes: Duration::from_secs(3_600), ..Slow::default() };
    let revision = server.lock().unwrap().revision;
    while server.lock().unwrap().revision == revision {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let leader = scene.end().await;
    server.lock().unwrap().slow = Slow::default();
    leader.release().await;
    assert_eq!(server.lock().unwrap().holder(), "");
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_all_calls_gets_a_few_requests_a_second() {
    for code in [429, 403, 401] {
        let server = ApiServer::default();
        let mut one = Scene::new(&server, "a");
        one.is_active(true).await;
        server.lock().unwrap().refuses = Some(code);
        let asked = server.lock().unwrap().asked.len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = server.lock().unwrap().asked.len() - asked;
        assert!(asked <= 140, "{asked} requests in a minute after {code}");
        server.lock().unwrap().refuses = None;
        let began = clock::now();
        one.is_active(true).await;
        assert!(clock::now().since(began) <= Duration::from_millis(1_100));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_of_refusals_does_not_end_the_role() {
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    let mut active = one.active.clone();
    active.borrow_and_update();
    tokio::time::sleep(Duration::from_millis(950)).await;
    server.lock().unwrap().refuses = Some(429);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    server.lock().unwrap().refuses = None;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!active.has_changed().unwrap(), "it was inactive meanwhile");
}

/// If etcd is full, the API server serves reads and answers writes with 500.
#[tokio::test(start_paused = true)]
async fn an_etcd_that_refuses_writes_gets_two_requests_a_second_and_one_log_line() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = ApiServer::default();
    let mut one = Scene::new(&server, "a");
    one.is_active(true).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.lock().unwrap().refuses_writes = Some(500);
    let (asked, logged) = (server.lock().unwrap().asked.len(), lines.0.lock().unwrap().len());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = server.lock().unwrap().asked.len() - asked;
    let text = String::from_utf8(lines.0.lock().unwrap()[logged..].to_vec()).unwrap();
    let number = text.lines().count();
    let beginning: Vec<_> = text.lines().take(6).collect();
    // The second line says that the deadline has passed.
    assert!(asked <= 130 && number <= 2, "in a minute {asked} requests, {number} lines: {beginning:#?}");
    server.lock().unwrap().refuses_writes = None;
    let began = clock::now();
    one.is_active(true).await;
    assert!(clock::now().since(began) <= Duration::from_millis(1_100));
}
