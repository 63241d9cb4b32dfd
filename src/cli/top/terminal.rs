//! The live view in a terminal, which is restored on every exit.

use std::env;
use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use anyhow::{Context, Result};
use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::clock;

use super::screen::TopScreen;
use super::snapshot::{TopModel, TopOrder};
use super::watch::TopWatch;

/// Minimum time between two frames, unless a key is pressed.
const FRAME: Duration = Duration::from_millis(250);

/// A frame is drawn at least after this many intervals, since it shows ages.
const MOST_SKIPPED: u32 = 4;

/// Maximum events that are applied before a key is handled.
const MAX_BATCH: usize = 100;

/// The terminal in raw mode on its alternate screen. `Terminal::drop` would print to a terminal that is gone, and panic.
struct RawTerminal(ManuallyDrop<DefaultTerminal>);

impl RawTerminal {
    /// A panic also restores the terminal: by the hook that `try_init` sets.
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(|terminal| Self(ManuallyDrop::new(terminal))).inspect_err(|_| restore())
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        restore();
    }
}

fn restore() {
    // The terminal may be gone.
    let _ = ratatui::try_restore();
}

/// The signals that end a process in a terminal.
struct EndSignals([Signal; 3]);

impl EndSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Shows the screen until the user quits.
///
/// # Errors
/// The terminal cannot be used.
pub(super) async fn live(watch: &TopWatch, mut model: TopModel, order: TopOrder, limit: usize) -> Result<()> {
    let has_colour = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = TopScreen::new(order, limit, has_colour);
    let mut signals = EndSignals::listen().context("cannot listen to signals")?;
    let mut events = watch.events().ready_chunks(MAX_BATCH);
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut terminal = RawTerminal::enter().context(TERMINAL)?;
    let mut keys = EventStream::new();
    let mut skipped = MOST_SKIPPED;
    let mut has_changed = true;
    loop {
        tokio::select! {
            biased;
            () = signals.any() => return Ok(()),
            input = keys.next() => {
                let Some(input) = input else { return Ok(()) };
                match input.context(TERMINAL)? {
                    Event::Key(key) if key.is_press() && screen.press(key, &model, clock::wall()) => return Ok(()),
                    _ => (has_changed, skipped) = (true, MOST_SKIPPED),
                }
            }
            _ = frames.tick() => {
                watch.note_responses(&mut model);
                skipped += 1;
            }
            Some(batch) = events.next() => {
                batch.into_iter().for_each(|event| watch.apply(event, &mut model));
                has_changed = true;
                continue;
            }
        }
        if has_changed || skipped >= MOST_SKIPPED {
            terminal.0.draw(|frame| screen.draw(frame, &model, clock::wall())).context(TERMINAL)?;
            (has_changed, skipped) = (false, 0);
        }
    }
}

const TERMINAL: &str = "cannot use the terminal; use --once for a table";
