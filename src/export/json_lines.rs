//! Export to a file or to standard output: one JSON object per line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::delivery::{Exporter, Outcome};
use super::record::{Attribute, ExportRecord};

/// The value of `--export-file` for standard output.
const STDOUT: &str = "-";

/// Writes batches on a thread of its own: a pipe that nobody reads blocks it, and nothing else.
pub struct JsonLines {
    writes: mpsc::Sender<LinesWrite>,
    instance: Arc<str>,
}

/// Text to write, and where its result goes.
struct LinesWrite {
    text: String,
    done: oneshot::Sender<io::Result<()>>,
}

impl JsonLines {
    /// Opens the file, which is appended to. `instance` distinguishes this process from others in the
    /// identifiers of records.
    ///
    /// # Errors
    /// If the file cannot be opened, or without a thread.
    pub fn open(path: &Path, instance: Arc<str>) -> io::Result<Self> {
        let mut target = LinesTarget::open(path)?;
        let (writes, mut received) = mpsc::channel::<LinesWrite>(1);
        thread::Builder::new().name("export-file".into()).spawn(move || {
            while let Some(LinesWrite { text, done }) = received.blocking_recv() {
                // The delivery has ended if nobody waits.
                let _ = done.send(target.write(text.as_bytes()));
            }
        })?;
        Ok(Self { writes, instance })
    }
}

impl Exporter for JsonLines {
    async fn send(&self, batch: &[Arc<ExportRecord>]) -> Outcome {
        let text = batch.iter().fold(String::new(), |text, record| text + &line(record, &self.instance));
        let (done, written) = oneshot::channel();
        if self.writes.send(LinesWrite { text, done }).await.is_err() {
            return Outcome::Refused { error: "the thread that writes --export-file has ended".into() };
        }
        match written.await {
            Ok(Ok(())) => Outcome::Delivered { refused: 0 },
            Ok(Err(error)) => {
                Outcome::Failed { error: format!("cannot write --export-file: {error}"), pause: None }
            }
            Err(_) => Outcome::Refused { error: "the thread that writes --export-file has ended".into() },
        }
    }
}

/// The line of a record, with the names of the OpenTelemetry log data model.
fn line(record: &ExportRecord, instance: &str) -> String {
    let attributes = record.attributes().map(|(name, value)| {
        let value = match value {
            Attribute::Text(text) => Value::from(text),
            Attribute::Number(number) => Value::from(number),
        };
        (name.to_owned(), value)
    });
    let mut attributes: Map<_, _> = attributes.collect();
    attributes.insert("log.record.uid".to_owned(), record.uid(instance).into());
    let line = json!({
        "timestamp": record.occurred_at,
        "observedTimestamp": record.received_at,
        "severityNumber": record.severity(),
        "severityText": record.event_type,
        "body": record.message,
        "attributes": attributes,
    });
    format!("{line}\n")
}

/// Where the lines go.
struct LinesTarget {
    /// `None` for standard output.
    path: Option<PathBuf>,
    file: File,
    /// Bytes of a failed write that are written. The next write is the same one again.
    written: usize,
    /// Whether the file ends within a line, which an earlier process has not finished.
    is_torn: bool,
}

impl LinesTarget {
    fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == STDOUT {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self { path: None, file, written: 0, is_torn: false });
        }
        // A pipe is opened for reading too. Otherwise this waits for its reader, and a reader that restarts loses lines.
        let is_pipe = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        let file = OpenOptions::new().append(true).create(true).read(is_pipe).open(path)?;
        Ok(Self { path: Some(path.to_owned()), file, written: 0, is_torn: is_torn(path) })
    }

    /// Writes the whole text. After an error it continues where it has stopped. A file that was renamed, as by logrotate, is
    /// opened again before the next text, and a deleted one at once.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if let Some(path) = &self.path
            && (is_deleted(&self.file) || self.written == 0 && !is_at(&self.file, path))
        {
            *self = Self::open(path)?;
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while self.written < text.len() {
            match self.file.write(&text[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        Ok(())
    }
}

/// Whether the file ends within a line. A pipe or a file that cannot be read does not.
fn is_torn(path: &Path) -> bool {
    let last_byte = || {
        let length = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
        let mut last = [0];
        File::open(path).ok()?.read_exact_at(&mut last, length.checked_sub(1)?).ok()?;
        Some(last[0])
    };
    last_byte().is_some_and(|last| last != b'\n')
}

/// Whether the file was deleted.
fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 0)
}

/// Whether the file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().map(identity).ok() == fs::metadata(path).map(identity).ok()
}

#[cfg(test)]
mod tests;
