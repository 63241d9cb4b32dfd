//! The load generator: workers that each wait for their answers.

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::Client;

use crate::answers::Answered;
use crate::work::{EventApi, Worker, Write};

/// Target of the writes.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) api: EventApi,
}

/// Runs all workers concurrently until `time` has passed or they have no more writes; returns every answer. Latency
/// counts from the due time of a write if its worker was late, so that a slow answer also counts for the writes that
/// waited.
pub(crate) async fn run_workers(
    target: &Target,
    workers: Vec<Worker>,
    began: Instant,
    time: Duration,
) -> Vec<Answered> {
    let workers = workers.into_iter().map(|worker| tokio::spawn(work(target.clone(), worker, began, time)));
    join_all(workers).await.into_iter().flatten().flatten().collect()
}

/// Sends these writes one after the other.
pub(crate) async fn prepare(target: &Target, writes: Vec<Write>, began: Instant) -> Vec<Answered> {
    let worker: Worker = Box::new(writes.into_iter().map(|write| (None, write)));
    work(target.clone(), worker, began, Duration::MAX).await
}

async fn work(target: Target, worker: Worker, began: Instant, time: Duration) -> Vec<Answered> {
    let mut answered = Vec::new();
    for (due, write) in worker {
        let late = due.filter(|due| *due <= began.elapsed());
        if let (Some(due), None) = (due, late) {
            tokio::time::sleep_until((began + due).into()).await;
        }
        let after = late.unwrap_or_else(|| began.elapsed());
        if after >= time || began.elapsed() >= time {
            break;
        }
        let status = send(&target, &write).await;
        let took = began.elapsed().saturating_sub(after);
        let (occurrences, governed) = (write.occurrences(), write.is_governed());
        answered.push(Answered { after, took, status, occurrences, governed });
    }
    answered
}

async fn send(target: &Target, write: &Write) -> u16 {
    let Ok(request) = write.request(&target.namespace, target.api) else { return 0 };
    match target.client.request_text(request).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}
