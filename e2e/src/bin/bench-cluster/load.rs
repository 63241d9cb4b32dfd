//! Who writes: hands that each wait for their answers.

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::Client;

use crate::answers::Answered;
use crate::work::{Hand, Through, Write};

/// Where the writes go.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) through: Through,
}

/// All hands at once, until `time` is over or they have nothing more to write; every answer. Latency is counted from
/// when a write was due if its hand was late, so that a slow answer is not hidden by the writes that waited for it.
pub(crate) async fn blow(target: &Target, hands: Vec<Hand>, began: Instant, time: Duration) -> Vec<Answered> {
    let hands = hands.into_iter().map(|hand| tokio::spawn(work(target.clone(), hand, began, time)));
    join_all(hands).await.into_iter().flatten().flatten().collect()
}

/// These writes, one after the other.
pub(crate) async fn prepare(target: &Target, writes: Vec<Write>, began: Instant) -> Vec<Answered> {
    let hand: Hand = Box::new(writes.into_iter().map(|write| (None, write)));
    work(target.clone(), hand, began, Duration::MAX).await
}

async fn work(target: Target, hand: Hand, began: Instant, time: Duration) -> Vec<Answered> {
    let mut answered = Vec::new();
    for (due, write) in hand {
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
        answered.push(Answered { after, took, status, governed: write.is_governed() });
    }
    answered
}

async fn send(target: &Target, write: &Write) -> u16 {
    let Ok(request) = write.request(&target.namespace, target.through) else { return 0 };
    match target.client.request_text(request).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}
