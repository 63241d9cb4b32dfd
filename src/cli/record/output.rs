//! The file of a recording.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum number of texts that wait for the writer. Then the watch is read no further.
const WAITING: usize = 64;

/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Writes lines on a thread of its own: a pipe whose reader has stopped must not block the signals.
pub(super) struct TraceOutput {
    /// The queue. It is closed if the output cannot be written.
    pub(super) lines: Sender<String>,
    written: oneshot::Receiver<io::Result<()>>,
}

/// Returns an error if the file exists and may not be replaced.
pub(super) fn check(path: &Path, force: bool) -> Result<()> {
    if !is_standard_output(path) && !force && path.exists() {
        bail!("{} exists; add --force to replace it, or name another --file", path.display());
    }
    Ok(())
}

/// Whether the trace goes to standard output.
pub(super) fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name of a file for messages.
pub(super) fn name(path: &Path) -> String {
    if is_standard_output(path) { "standard output".to_owned() } else { path.display().to_string() }
}

impl TraceOutput {
    /// Creates the file.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self> {
        if is_standard_output(path) {
            return Ok(Self::start(io::stdout()));
        }
        check(path, force)?;
        let file = File::options().write(true).create(true).truncate(true).create_new(!force).open(path);
        let file = file.with_context(|| format!("cannot create {}; name another --file", path.display()))?;
        Ok(Self::start(file))
    }

    /// Writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> Self {
        let (lines, waiting) = mpsc::channel(WAITING);
        let (result, written) = oneshot::channel();
        // No thread of the runtime: a runtime waits for those at its end.
        std::thread::spawn(move || result.send(write(waiting, BufWriter::new(out))));
        Self { lines, written }
    }

    /// Waits until everything is written.
    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.lines);
        match timeout(LAST_LINES, self.written).await {
            Ok(written) => written.map_err(io::Error::other)?,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it takes no more data")),
        }
    }
}

/// Writes until the queue is closed. All that has come is passed to the system before it waits for more.
fn write(mut waiting: Receiver<String>, mut out: impl Write) -> io::Result<()> {
    while let Some(lines) = waiting.blocking_recv() {
        out.write_all(lines.as_bytes())?;
        while let Ok(lines) = waiting.try_recv() {
            out.write_all(lines.as_bytes())?;
        }
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("squelch-record-{}-{name}", std::process::id()))
    }

    #[tokio::test]
    async fn an_existing_file_is_replaced_only_with_force() {
        let path = file("existing");
        std::fs::write(&path, "the only copy of something").unwrap();
        let refused = TraceOutput::open(&path, false).map(drop).unwrap_err().to_string();
        assert!(refused.contains("--force") && refused.contains(&path.display().to_string()), "{refused}");
        let output = TraceOutput::open(&path, true).unwrap();
        output.lines.send("a\n".to_owned()).await.unwrap();
        output.lines.send("b\n".to_owned()).await.unwrap();
        output.finish().await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_file_in_a_missing_folder_is_an_error_with_its_name() {
        let path = file("missing").join("trace.jsonl");
        let error = format!("{:#}", TraceOutput::open(&path, false).map(drop).unwrap_err());
        assert!(error.contains("trace.jsonl") && error.contains("No such file"), "{error}");
    }

    /// An output that fails, or that takes nothing.
    struct Broken(Option<io::ErrorKind>);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            let Some(kind) = self.0 else {
                loop {
                    std::thread::park();
                }
            };
            Err(kind.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_failed_write_closes_the_queue_and_is_reported() {
        let output = TraceOutput::start(Broken(Some(io::ErrorKind::StorageFull)));
        output.lines.send("a\n".to_owned()).await.unwrap();
        output.lines.closed().await;
        assert_eq!(output.finish().await.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[tokio::test(start_paused = true)]
    async fn an_output_that_takes_nothing_does_not_block_the_end() {
        let output = TraceOutput::start(Broken(None));
        output.lines.send("a\n".to_owned()).await.unwrap();
        assert_eq!(output.finish().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
