"""An operator with kopf that emits Events, run as `kopf run --standalone --namespace NAMESPACE` runs it.

Its handler for the ConfigMap --object calls kopf.warn, kopf.info or kopf.event for each occurrence, as the chapter
"Events" of kopf's documentation shows. All settings are kopf's defaults, also those of settings.posting and of the log.

kopf puts each occurrence into a queue and writes it in the background: the handler gets no answer and no error, so this
program prints no "error" lines. What the API server refuses is in kopf's log on standard error.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable

import kopf
import kopf.cli
from kopf._cogs.clients import events as kopf_events

# Seconds. kopf must have the answers to all writes so long after the last occurrence.
DEADLINE = 60


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kopf", allow_abbrev=False)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--object", required=True, help="name of a ConfigMap")
    parser.add_argument("--uid", help="unused: kopf has the uid from its watch")
    parser.add_argument("--type", default="Warning")
    parser.add_argument("--reason", default="SyncFailed")
    parser.add_argument("--message", default="could not sync: connection refused")
    parser.add_argument("--messages", choices=["identical", "distinct"], default="identical")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--interval", type=int, default=200, help="milliseconds")
    return parser.parse_args()


class Progress:
    """What the handler has emitted, and what kopf has done with it."""

    def __init__(self, count: int, reason: str):
        self.count = count
        self.reason = reason
        self.emitted = 0
        self.answered = 0
        self.finished = asyncio.Event()
        self.stop = asyncio.Event()
        self.missing: str | None = None

    def watch_answers(self) -> None:
        """Counts the returns of kopf's function that writes an Event: it returns after the last answer."""
        post_event: Callable = kopf_events.post_event

        async def counted(**arguments):
            await post_event(**arguments)
            # Not the Events that kopf posts for its log, if that is enabled: their reason is Logging.
            self.answered += arguments["reason"] == self.reason
            if self.answered == self.count:
                self.finished.set()

        kopf_events.post_event = counted

    async def supervise(self, seconds: float) -> None:
        """Stops the operator when all occurrences are answered, or after the given time."""
        try:
            async with asyncio.timeout(seconds):
                await self.finished.wait()
        except TimeoutError:
            self.missing = (
                f"{self.answered} of {self.count} occurrences are answered, {self.emitted} are emitted, "
                f"{DEADLINE} s after the last one"
            )
        self.stop.set()


def define_handlers(options: argparse.Namespace, progress: Progress) -> None:
    def is_object(name: str | None, **_) -> bool:
        return name == options.object

    @kopf.on.startup(id="start")
    async def start(memo: kopf.Memo, **_) -> None:
        memo.supervisor = asyncio.create_task(progress.supervise(options.count * options.interval / 1000 + DEADLINE))

    @kopf.on.create("configmaps", id="sync", when=is_object)
    @kopf.on.resume("configmaps", id="sync", when=is_object)
    async def sync(body: kopf.Body, **_) -> None:
        for occurrence in range(1, options.count + 1):
            if occurrence > 1:
                await asyncio.sleep(options.interval / 1000)
            message = options.message if options.messages == "identical" else f"{options.message} #{occurrence}"
            if options.type == "Warning":
                kopf.warn(body, reason=options.reason, message=message)
            elif options.type == "Normal":
                kopf.info(body, reason=options.reason, message=message)
            else:
                kopf.event(body, type=options.type, reason=options.reason, message=message)
            progress.emitted = occurrence


def main() -> None:
    options = parse_options()
    progress = Progress(options.count, options.reason)
    progress.watch_answers()
    # kopf reads it when the first handler is registered.
    os.environ["KUBECONFIG"] = options.kubeconfig
    define_handlers(options, progress)
    kopf.cli.main(
        args=["run", "--standalone", "--namespace", options.namespace],
        obj=kopf.cli.CLIControls(stop_flag=progress.stop),
        standalone_mode=False,
    )
    version = importlib.metadata.version("kopf")
    print(
        json.dumps({"line": "summary", "emitter": f"kopf {version}", "occurrences": progress.emitted, "errors": 0}),
        flush=True,
    )
    if progress.missing:
        sys.exit(f"kopf: {progress.missing}")


if __name__ == "__main__":
    main()
