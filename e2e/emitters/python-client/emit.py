"""Emits Events with the official Python client (PyPI package kubernetes), which has no event recorder.

Its users write Events with the typed API calls of CoreV1Api. --write selects one of three ways:

replace  read_namespaced_event by a fixed name, create_namespaced_event if it is missing, else count + 1 and
         replace_namespaced_event. The documentation of kubernetes.utils.retry_on_conflict says to read the object again
         before each attempt, so read and write are in one function.
patch    the same with patch_namespaced_event: only count and lastTimestamp are in the body.
create   create_namespaced_event with generateName, one Event per occurrence.

The client logs nothing by itself: a refusal reaches the program as an ApiException.
"""

import argparse
import json
import signal
import socket
import sys
import time
from datetime import datetime, timezone

import kubernetes
from kubernetes import client, config
from kubernetes.utils import retry_on_conflict
from urllib3.exceptions import HTTPError

# Seconds. The time that one occurrence may take, with its retries.
DEADLINE = 60


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python-client", allow_abbrev=False)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--object", required=True, help="name of a ConfigMap")
    parser.add_argument("--uid", help="uid of the ConfigMap; default: read from the API")
    parser.add_argument("--type", default="Warning")
    parser.add_argument("--reason", default="SyncFailed")
    parser.add_argument("--message", default="could not sync: connection refused")
    parser.add_argument("--messages", choices=["identical", "distinct"], default="identical")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--interval", type=int, default=200, help="milliseconds")
    parser.add_argument("--write", choices=["replace", "patch", "create"], default="replace")
    return parser.parse_args()


class Emitter:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.api = client.CoreV1Api()
        self.uid = options.uid or self.api.read_namespaced_config_map(options.object, options.namespace).metadata.uid
        self.name = f"{options.object}.{options.reason.lower()}"

    def report(self, message: str) -> None:
        # All tries of an occurrence have its time.
        now = datetime.now(timezone.utc)
        if self.options.write == "create":
            metadata = client.V1ObjectMeta(generate_name=f"{self.options.object}-")
            self.api.create_namespaced_event(self.options.namespace, self.event(metadata, message, now))
        else:
            retry_on_conflict(lambda: self.read_and_write(message, now))

    def read_and_write(self, message: str, now: datetime) -> None:
        namespace = self.options.namespace
        try:
            event = self.api.read_namespaced_event(self.name, namespace)
        except client.ApiException as error:
            if error.status != 404:
                raise
            self.api.create_namespaced_event(namespace, self.event(client.V1ObjectMeta(name=self.name), message, now))
            return
        event.count = (event.count or 0) + 1
        event.last_timestamp = now
        event.message = message
        if self.options.write == "replace":
            self.api.replace_namespaced_event(self.name, namespace, event)
        else:
            body = {"count": event.count, "lastTimestamp": event.last_timestamp}
            self.api.patch_namespaced_event(self.name, namespace, body)

    def event(self, metadata: client.V1ObjectMeta, message: str, now: datetime) -> client.CoreV1Event:
        return client.CoreV1Event(
            metadata=metadata,
            involved_object=client.V1ObjectReference(
                api_version="v1",
                kind="ConfigMap",
                namespace=self.options.namespace,
                name=self.options.object,
                uid=self.uid,
            ),
            type=self.options.type,
            reason=self.options.reason,
            message=message,
            source=client.V1EventSource(component="python-client", host=socket.gethostname()),
            count=1,
            first_timestamp=now,
            last_timestamp=now,
        )


def main() -> None:
    options = parse_options()

    def give_up(_signal, _frame):
        what = f"occurrence {occurrence} is" if occurrence else "the read of the ConfigMap is"
        sys.exit(f"python-client: {what} not answered after {DEADLINE} s")

    signal.signal(signal.SIGALRM, give_up)
    occurrence, errors = 0, 0
    signal.alarm(DEADLINE)
    config.load_kube_config(options.kubeconfig)
    emitter = Emitter(options)
    for occurrence in range(1, options.count + 1):
        if occurrence > 1:
            time.sleep(options.interval / 1000)
        message = options.message if options.messages == "identical" else f"{options.message} #{occurrence}"
        signal.alarm(DEADLINE)
        try:
            emitter.report(message)
        except (client.ApiException, HTTPError) as error:
            errors += 1
            print_line({"line": "error", "occurrence": occurrence, "error": describe(error)})
    signal.alarm(0)
    print_line(
        {
            "line": "summary",
            "emitter": f"kubernetes-client/python {kubernetes.__version__}",
            "occurrences": options.count,
            "errors": errors,
        }
    )


def describe(error: Exception) -> str:
    """Returns the class of an error, and status and message of the API server's answer."""
    if not isinstance(error, client.ApiException):
        return f"{type(error).__name__}: {error}"
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    return f"{type(error).__name__}: {error.status} {message}"


def print_line(line: dict) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
