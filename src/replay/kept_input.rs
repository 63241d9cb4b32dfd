//! An input that is read several times.

use std::io::Read;

use squelch_engine::{Moment, Observation};

use super::policies::{Policies, PolicyFile, Trial};
use super::progress::Progress;
use super::simulation::Simulation;
use super::{BadInput, ClientBehavior, Error, Options, ReplayReport, WriteSink, input, name, open, simulate};

/// Maximum bytes of an input that can be read only once. It is kept in memory.
const MAX_KEPT: u64 = 512 << 20;

/// Simulations of one pass over the input. Each has an engine with its own series.
const AT_ONCE: usize = 4;

/// Recorded writes that can be read several times.
pub struct ReplayInput {
    options: Options,
    /// The content, unless it is a file.
    kept: Option<Vec<u8>>,
}

impl ReplayInput {
    /// Prepares the input of the options, which say how it is read. What is no file, such as standard input, is kept in
    /// memory.
    pub fn open(options: Options) -> Result<Self, Error> {
        let path = &options.input;
        if path.metadata().is_ok_and(|metadata| metadata.is_file()) && path.as_os_str() != "-" {
            return Ok(Self { options, kept: None });
        }
        let progress = Progress::default();
        let mut kept = Vec::new();
        let read = open(path, &progress)?.take(MAX_KEPT + 1).read_to_end(&mut kept);
        progress.finish();
        read.map_err(|source| Error::read(path, source))?;
        if kept.len() as u64 > MAX_KEPT {
            let reason = "has more than 512 MiB, the maximum of an input that is no file; save it to a file"
                .to_owned();
            return Err(BadInput { file: name(path), place: String::new(), reason }.into());
        }
        Ok(Self { options, kept: Some(kept) })
    }

    /// An input with this content. The input of the options is its name in messages.
    pub fn of(options: Options, content: Vec<u8>) -> Self {
        Self { options, kept: Some(content) }
    }

    /// Passes each write to `each`. squelch's own writes are marked.
    pub fn each_write(&self, each: &mut dyn FnMut(&Observation<'_>)) -> Result<(), Error> {
        let mut visitor = WriteVisitor { own_user: &self.options.own_user, each };
        let progress = Progress::default();
        input::replay(self.reader(&progress)?, &self.options, &mut visitor, &progress)?;
        progress.finish();
        Ok(())
    }

    /// Replays each of these sets of policies, which are YAML or JSON documents. Returns the reports in the same order.
    pub fn replay(&self, policies: &[String], clients: ClientBehavior) -> Result<Vec<ReplayReport>, Error> {
        let options = Options { clients, ..self.options.clone() };
        let namespace = Some(options.namespace.clone());
        let trial = Trial { namespace, as_enforced: options.as_enforced, namespaces: None };
        let mut reports = Vec::with_capacity(policies.len());
        for some in policies.chunks(AT_ONCE) {
            let simulations = some.iter().map(|text| {
                let file = PolicyFile { name: "proposed policies".to_owned(), text: text.clone() };
                Ok(Simulation::new(Policies::load(&[file], &trial)?, clients, None))
            });
            let simulations = simulations.collect::<Result<_, Error>>()?;
            let progress = Progress::default();
            reports.extend(simulate(self.reader(&progress)?, &options, simulations, &progress)?);
        }
        Ok(reports)
    }

    fn reader(&self, progress: &Progress) -> Result<Box<dyn Read + '_>, Error> {
        match &self.kept {
            None => Ok(open(&self.options.input, progress)?),
            Some(kept) => Ok(Box::new(progress.reading(kept.as_slice(), Some(kept.len() as u64)))),
        }
    }
}

/// Passes writes to a closure.
struct WriteVisitor<'v> {
    own_user: &'v str,
    each: &'v mut dyn FnMut(&Observation<'_>),
}

impl WriteSink for WriteVisitor<'_> {
    fn own_user(&self) -> &str {
        self.own_user
    }

    fn adapt_clients(&mut self) {}

    fn write(&mut self, _: Moment, write: &Observation<'_>, _: u64) -> Result<(), Error> {
        (self.each)(write);
        Ok(())
    }
}
