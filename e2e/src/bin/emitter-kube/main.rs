//! Floods an API server with Events through kube's own `Recorder` and says, as JSON lines, what it sent and what it
//! was answered. The lines are those of `emitter-go`: `e2e/emitters/README.md` describes them.

mod flags;
mod journal;
mod objects;
mod recorded;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use kube::{
    Client, Config,
    client::{ClientBuilder, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::events::{Event, Recorder, Reporter},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tower::{buffer::BufferLayer, retry::RetryLayer};

use crate::{
    flags::Options,
    journal::{Journal, ObjectTotal},
    objects::Regarding,
    recorded::RecordedLayer,
};

#[tokio::main]
async fn main() -> Result<()> {
    let options = Arc::new(Options::parse());
    let journal = Arc::new(Journal::new());
    let client = client(&options, &journal).await?;
    // One recorder for all objects, as a controller has it.
    let recorder = Recorder::new(
        client,
        Reporter { controller: options.component.clone(), instance: Some(options.instance.clone()) },
    );
    let (stop, stopped) = watch::channel(false);
    let mut storms = JoinSet::new();
    let started = Instant::now();
    for regarding in objects::regardings(&options) {
        let storm = Storm {
            options: Arc::clone(&options),
            journal: Arc::clone(&journal),
            recorder: recorder.clone(),
            stopped: stopped.clone(),
            started,
        };
        storms.spawn(storm.run(regarding));
    }
    let settled = finish(&mut storms, &stop, &options).await?;
    storms.shutdown().await;
    journal.summarize(&options.namespace, settled, objects::regardings(&options).iter().map(Regarding::total))
}

/// The client that `Client::try_from(config)` makes, with a record of every attempt: kube's default client retries
/// 429, 503 and 504 up to 15 times inside, where no layer on top sees it. So its own retries are switched off and
/// the same policy is put above the record.
async fn client(options: &Options, journal: &Arc<Journal>) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate.clone_from(&options.impersonate);
    config.default_retry = false;
    let url = config.cluster_url.clone();
    // Not recorded: the lines are those of the Events.
    let probe = Client::try_from(config.clone())?;
    probe.apiserver_version().await.with_context(|| format!("asking {url} for its version"))?;
    let client = ClientBuilder::try_from(config)?
        .with_layer(&RecordedLayer::new(Arc::clone(journal)))
        .with_layer(&BufferLayer::new(1024))
        .with_layer(&RetryLayer::new(RetryPolicy::server_retry()))
        .build();
    Ok(client)
}

/// Waits until all storms have ended by themselves, or stops them at a signal or at the end of `--duration`. True
/// when every occurrence that was published had its answer in time.
async fn finish(storms: &mut JoinSet<()>, stop: &watch::Sender<bool>, options: &Options) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        joined = join(storms) => return joined.map(|()| true),
        () = tokio::time::sleep(options.duration.unwrap_or(Duration::MAX)) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.send_replace(true);
    timeout(options.settle, join(storms)).await.map_or(Ok(false), |joined| joined.map(|()| true))
}

async fn join(storms: &mut JoinSet<()>) -> Result<()> {
    while let Some(ended) = storms.join_next().await {
        ended?;
    }
    Ok(())
}

/// The occurrences of one object. Each object has its own task, so that a slow answer delays this one only, and
/// one object's occurrences follow each other: the recorder's cache is updated after the answer, and two at once
/// would both send the same count.
struct Storm {
    options: Arc<Options>,
    journal: Arc<Journal>,
    recorder: Recorder,
    stopped: watch::Receiver<bool>,
    started: Instant,
}

impl Storm {
    async fn run(mut self, regarding: Regarding) {
        let mut n = 0;
        while self.options.count.is_none_or(|count| n < count) && self.due(n, regarding.index).await {
            self.journal.emitted(&regarding.name);
            let event = Event {
                type_: self.options.type_.into(),
                reason: self.options.reason.clone(),
                note: Some(self.options.message_of(n)),
                action: self.options.action.clone(),
                secondary: None,
            };
            // kube logs nothing by itself; a controller logs what `publish` returns.
            if let Err(error) = self.recorder.publish(&event, &regarding.reference).await {
                self.journal.logged("publishing an Event", &error.to_string());
            }
            n += 1;
        }
    }

    /// Returns when the object's n-th occurrence is due (at once when that is past), or false when it is over.
    async fn due(&mut self, n: u32, index: u32) -> bool {
        let place = f64::from(n) * f64::from(self.options.objects) + f64::from(index);
        let offset = if self.options.rate > 0.0 { place / self.options.rate } else { 0.0 };
        tokio::select! {
            biased;
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
            () = sleep_until(self.started + Duration::from_secs_f64(offset)) => true,
        }
    }
}

impl Regarding {
    fn total(&self) -> ObjectTotal {
        ObjectTotal { name: self.name.clone(), uid: self.uid.clone(), occurrences: 0, sent: 0 }
    }
}
