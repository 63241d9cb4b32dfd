//! A clock and a timer in nanoseconds: tokio's timer has milliseconds, within which a fast server answers ten
//! reviews.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const SECOND: u64 = 1_000_000_000;

/// The monotonic clock, in nanoseconds.
pub(super) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Processor time of this thread, in nanoseconds.
pub(super) fn thread_time() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}

/// A timer for moments of [`now`].
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set_for: u64,
}

impl Alarm {
    /// Needs a runtime.
    pub(super) fn new() -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, because the file could be closed elsewhere; this one cannot"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer, set_for: 0 })
    }

    /// Returns at `moment`, or at once if it is past. Cancel-safe and reusable.
    pub(super) async fn wait_until(&mut self, moment: u64) -> io::Result<()> {
        if self.set_for != moment {
            // Setting the timer resets its expiration: no read is needed.
            let time = Timespec {
                tv_sec: (moment / SECOND).cast_signed(),
                tv_nsec: (moment % SECOND).cast_signed(),
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: time };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
            self.set_for = moment;
        }
        loop {
            let mut ready = self.timer.readable().await?;
            if now() >= moment {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_never_fires_early_and_can_be_reused() {
        let mut alarm = Alarm::new().unwrap();
        for later in [0, 300_000, 2_000_000] {
            let moment = now() + later;
            alarm.wait_until(moment).await.unwrap();
            assert!(now() >= moment);
        }
    }
}
