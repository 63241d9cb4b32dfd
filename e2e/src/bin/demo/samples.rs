//! Event writes in etcd over the time of a storm: the data of the picture in README.md.

use std::fmt::Write as _;
use std::time::Duration;

/// Time between two samples.
pub(crate) const STEP: Duration = Duration::from_millis(500);

/// The number of writes in the first 0, 1, 2, ... steps of a storm, until it includes all of them. `ages` are the
/// times of the writes since the start of the storm.
pub(crate) fn sums(ages: impl IntoIterator<Item = Duration>) -> Vec<usize> {
    let mut sums = vec![0];
    for age in ages {
        let step = age.as_nanos().div_ceil(STEP.as_nanos()) as usize;
        sums.resize(sums.len().max(step + 1), 0);
        sums[step] += 1;
    }
    let mut sum = 0;
    for sample in &mut sums {
        sum += *sample;
        *sample = sum;
    }
    sums
}

/// Both storms as CSV. The storm that ends first keeps its last sum.
pub(crate) fn csv([without, with]: [&[usize]; 2]) -> String {
    let mut text = "seconds,without_squelch,with_squelch\n".to_owned();
    let at = |sums: &[usize], step| sums.get(step).or(sums.last()).copied().unwrap_or_default();
    for step in 0..without.len().max(with.len()) {
        let seconds = STEP.as_secs_f64() * step as f64;
        let _ = writeln!(text, "{seconds:.1},{},{}", at(without, step), at(with, step));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_is_the_sum_of_all_writes_up_to_its_time() {
        let ages = [0, 1, 500, 501, 1_900].map(Duration::from_millis);
        assert_eq!(sums(ages), [1, 3, 4, 4, 5]);
        assert_eq!(sums([]), [0]);
    }

    #[test]
    fn the_shorter_storm_keeps_its_last_sum() {
        let lines = "seconds,without_squelch,with_squelch\n0.0,0,0\n0.5,40,2\n1.0,40,3\n";
        assert_eq!(csv([&[0, 40], &[0, 2, 3]]), lines);
    }
}
