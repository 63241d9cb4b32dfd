// Emits Events with @kubernetes/client-node, which has no event recorder.
//
// Its users write Events with the typed API calls. --api selects CoreV1Api (core) or EventsV1Api (events), --write one
// of two ways:
//
// create   createNamespacedEvent with generateName, one Event per occurrence, as users of this client do in their
//          own recorders.
// replace  readNamespacedEvent by a fixed name, createNamespacedEvent if it is missing, else count + 1 and
//          replaceNamespacedEvent. After 409 it reads the Event again, at most 5 times: the client retries nothing.
//
// The client logs nothing by itself: a refusal rejects the promise of the call with an ApiException.
// 1.4.0 is the newest version that runs on Node.js 20.

import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import * as k8s from '@kubernetes/client-node';

// Milliseconds. The time that one occurrence may take, with its retries.
const DEADLINE = 60_000;
const ATTEMPTS = 5;
const PROGRAM = 'javascript-client';

const options = parseOptions();
const kubeConfig = new k8s.KubeConfig();
kubeConfig.loadFromFile(options.kubeconfig);
const api = kubeConfig.makeApiClient(options.api === 'core' ? k8s.CoreV1Api : k8s.EventsV1Api);
const fixedName = `${options.object}.${options.reason.toLowerCase()}`;

// A timer on its own keeps the process alive: it is stopped after the last answer.
let waitingFor = 'the ConfigMap';
const deadline = setTimeout(() => fail(1, `no answer for ${waitingFor} after ${DEADLINE / 1000} s`), DEADLINE);
const object = await regardingObject();
let errors = 0;
for (let occurrence = 1; occurrence <= options.count; occurrence += 1) {
    if (occurrence > 1) {
        await sleep(options.interval);
    }
    waitingFor = `occurrence ${occurrence}`;
    deadline.refresh();
    const message = options.messages === 'identical' ? options.message : `${options.message} #${occurrence}`;
    try {
        await (options.write === 'create' ? create({ generateName: `${options.object}-` }, message) : replace(message));
    } catch (error) {
        errors += 1;
        printLine({ line: 'error', occurrence, error: describe(error) });
    }
}
clearTimeout(deadline);
printLine({ line: 'summary', emitter: `@kubernetes/client-node ${version()}`, occurrences: options.count, errors });

async function replace(message) {
    // All attempts of an occurrence have its time.
    const now = new k8s.V1MicroTime();
    for (let attempt = 1; ; attempt += 1) {
        try {
            return await readAndWrite(message, now);
        } catch (error) {
            if (error.code !== 409 || attempt === ATTEMPTS) {
                throw error;
            }
        }
    }
}

async function readAndWrite(message, now) {
    const target = { name: fixedName, namespace: options.namespace };
    let event;
    try {
        event = await api.readNamespacedEvent(target);
    } catch (error) {
        if (error.code !== 404) {
            throw error;
        }
        return create({ name: fixedName }, message);
    }
    if (options.api === 'core') {
        event.count = (event.count ?? 0) + 1;
        event.lastTimestamp = new Date(now);
        event.message = message;
    } else {
        // In events.k8s.io only series and note say that an Event occurred again.
        event.series = { count: (event.series?.count ?? 1) + 1, lastObservedTime: now };
        event.note = message;
    }
    return api.replaceNamespacedEvent({ ...target, body: event });
}

async function create(metadata, message) {
    return api.createNamespacedEvent({
        namespace: options.namespace,
        body: options.api === 'core' ? coreEvent(metadata, message) : eventsEvent(metadata, message),
    });
}

function coreEvent(metadata, message) {
    const now = new Date();
    return {
        metadata,
        involvedObject: object,
        type: options.type,
        reason: options.reason,
        message,
        source: { component: PROGRAM, host: hostname() },
        count: 1,
        firstTimestamp: now,
        lastTimestamp: now,
    };
}

function eventsEvent(metadata, message) {
    return {
        metadata,
        regarding: object,
        type: options.type,
        reason: options.reason,
        note: message,
        action: 'Sync',
        reportingController: `squelch.dev/${PROGRAM}`,
        reportingInstance: hostname(),
        eventTime: new k8s.V1MicroTime(),
    };
}

async function regardingObject() {
    const reference = { apiVersion: 'v1', kind: 'ConfigMap', namespace: options.namespace, name: options.object };
    if (options.uid !== undefined) {
        return { ...reference, uid: options.uid };
    }
    const core = kubeConfig.makeApiClient(k8s.CoreV1Api);
    const { metadata } = await core.readNamespacedConfigMap({ name: options.object, namespace: options.namespace });
    return { ...reference, uid: metadata.uid };
}

// Returns the class of an error, and status and message of the API server's answer.
function describe(error) {
    if (!(error instanceof k8s.ApiException)) {
        return `${error.name}: ${error.message}`;
    }
    let message = error.body;
    try {
        message = JSON.parse(error.body).message;
    } catch {
        // Not a Status.
    }
    return `${error.constructor.name}: ${error.code} ${message}`;
}

function parseOptions() {
    const text = (value) => ({ type: 'string', default: value });
    let values;
    try {
        values = parseArgs({
            options: {
                kubeconfig: text(),
                namespace: text(),
                object: text(),
                uid: text(),
                type: text('Warning'),
                reason: text('SyncFailed'),
                message: text('could not sync: connection refused'),
                messages: text('identical'),
                count: text(),
                interval: text('200'),
                api: text('core'),
                write: text('create'),
            },
        }).values;
    } catch (error) {
        fail(2, error.message);
    }
    for (const flag of ['kubeconfig', 'namespace', 'object', 'count']) {
        if (values[flag] === undefined) {
            fail(2, `--${flag} is required`);
        }
    }
    for (const [flag, choices] of Object.entries({
        messages: ['identical', 'distinct'],
        api: ['core', 'events'],
        write: ['create', 'replace'],
    })) {
        if (!choices.includes(values[flag])) {
            fail(2, `--${flag} is one of ${choices.join(', ')}, not '${values[flag]}'`);
        }
    }
    for (const flag of ['count', 'interval']) {
        if (!/^\d+$/.test(values[flag])) {
            fail(2, `--${flag} is a number, not '${values[flag]}'`);
        }
        values[flag] = Number(values[flag]);
    }
    return values;
}

function version() {
    return JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8')).dependencies[
        '@kubernetes/client-node'
    ];
}

function printLine(line) {
    process.stdout.write(`${JSON.stringify(line)}\n`);
}

function fail(status, message) {
    process.stderr.write(`${PROGRAM}: ${message}\n`);
    process.exit(status);
}
