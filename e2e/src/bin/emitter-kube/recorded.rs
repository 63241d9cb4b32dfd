//! A layer that records every request and its answer in the journal.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::journal::{Call, Journal};

/// Wraps a service in [`Recorded`].
#[derive(Clone)]
pub(crate) struct RecordedLayer(Arc<Journal>);

impl RecordedLayer {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self(journal)
    }
}

impl<S> Layer<S> for RecordedLayer {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Recorded { inner, journal: Arc::clone(&self.0) }
    }
}

/// Buffers the bodies and passes them on.
pub(crate) struct Recorded<S> {
    inner: S,
    journal: Arc<Journal>,
}

impl<S, B> Service<Request<Body>> for Recorded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut call = Call::new(request.method(), request.uri().path());
        // All bodies of kube's Api are in memory and can be copied.
        let sent = request.body().try_clone();
        let sent_at = Instant::now();
        let answer = self.inner.call(request);
        let journal = Arc::clone(&self.journal);
        Box::pin(async move {
            if let Some(body) = sent {
                call.sent(&body.collect_bytes().await?);
            }
            let read = async {
                let (parts, body) = answer.await?.into_parts();
                let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
                Ok((parts, bytes))
            };
            let result = read.await;
            match &result {
                Ok((parts, bytes)) => call.answered(parts.status, bytes),
                Err(error) => call.failed(error),
            }
            journal.call(call, sent_at);
            result.map(|(parts, bytes)| Response::from_parts(parts, Body::from(bytes)))
        })
    }
}
