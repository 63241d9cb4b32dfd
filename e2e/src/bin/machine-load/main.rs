//! Takes all processors and the disk until its standard input is closed, or for at most the given time. Then prints what
//! it did.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _, stdout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;

/// One write and one fsync. The file is written anew after `BLOCKS` of them.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 64;

/// Takes all processors and the disk until its standard input is closed.
#[derive(Parser)]
struct Options {
    /// File to write and fsync. It is removed at the end.
    #[arg(long)]
    file: PathBuf,
    /// Maximum time in seconds.
    #[arg(long)]
    seconds: u64,
}

fn main() -> Result<()> {
    let Options { file, seconds } = Options::parse();
    let ended = Arc::new(AtomicBool::new(false));
    let processors = std::thread::available_parallelism()?.get();
    let burning: Vec<_> = (0..processors)
        .map(|_| {
            let ended = ended.clone();
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let disk = {
        let (ended, file) = (ended.clone(), file.clone());
        std::thread::spawn(move || fsyncs(&file, &ended))
    };
    // The parent closes the pipe, or has exited.
    let (closed, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = closed.send(());
    });
    let _ = wait.recv_timeout(Duration::from_secs(seconds));
    ended.store(true, Ordering::Relaxed);
    for thread in burning {
        thread.join().ok().context("a thread panicked")?;
    }
    let done = disk.join().ok().context("the writer panicked")?;
    let _ = std::fs::remove_file(&file);
    let (fsyncs, slowest) = done.with_context(|| file.display().to_string())?;
    writeln!(stdout(), "{processors} processors, {fsyncs} fsyncs of 1 MiB (slowest {slowest:.0?})")?;
    Ok(())
}

/// Writes and fsyncs until `ended`; returns the number of fsyncs, and the time of the slowest.
fn fsyncs(path: &PathBuf, ended: &AtomicBool) -> Result<(usize, Duration)> {
    let mut file = File::create(path)?;
    let block = vec![1; BLOCK];
    let (mut fsyncs, mut slowest) = (0, Duration::ZERO);
    while !ended.load(Ordering::Relaxed) {
        if fsyncs % BLOCKS == 0 {
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&block)?;
        let began = Instant::now();
        file.sync_data()?;
        slowest = slowest.max(began.elapsed());
        fsyncs += 1;
    }
    Ok((fsyncs, slowest))
}
