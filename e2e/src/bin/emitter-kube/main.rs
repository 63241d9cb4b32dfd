//! Floods an API server with Events through kube's own `Recorder` and prints its calls and their answers as JSON
//! lines, in the format of `emitter-go` (`e2e/emitters/README.md`).

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
    // One recorder for all objects, as in a controller.
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

/// The client of `Client::try_from(config)` with a record of every attempt. kube's default client retries 429, 503
/// and 504 up to 15 times internally, invisible to outer layers. So its own retries are disabled and the same policy
/// wraps the recording layer.
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

/// Waits until all storms have ended, or stops them at a signal or at the end of `--duration`. True if every
/// published occurrence was answered in time.
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

/// The occurrences of one object. Each object has its own task, so that a slow answer delays only this object. The
/// occurrences of an object are sequential: the recorder updates its cache after the answer, and two concurrent calls
/// would send the same count.
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
            // kube logs nothing itself; a controller logs the error of `publish`.
            if let Err(error) = self.recorder.publish(&event, &regarding.reference).await {
                self.journal.logged("publishing an Event", &error.to_string());
            }
            n += 1;
        }
    }

    /// Returns at the due time of the object's n-th occurrence (at once if it is past), or false at the end.
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
