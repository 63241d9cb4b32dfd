//! The occurrences of the traces in `examples/traces`. Messages are those of Kubernetes 1.35.

use crate::clients::{Emitter, MINUTE, Millis, Occurrence, Recorder, SECOND};
use crate::cluster::{Dice, container, controller, kubelet, object, occurrence, scheduler, start};

/// Pods whose container crashes two seconds after its start; the kubelet backs off for up to five minutes, and
/// reports it in every sync of the pod.
pub(crate) fn crash_loops(dice: &mut Dice, namespace: &str, pods: u64, until: Millis) -> Vec<Occurrence> {
    let mut all = Vec::new();
    for number in 0..pods {
        let (pod, node) = (dice.pod(namespace, "web-6d4cf56db6"), kubelet(number % 5));
        let web = container(&pod, "web");
        let message =
            format!("Back-off restarting failed container web in pod {}_{namespace}({})", pod.name, pod.uid);
        let (mut at, mut back_off) = (dice.below(20 * SECOND), 10 * SECOND);
        while at < until {
            all.extend(start(at, &node, &web, "registry.example.com/shop/web:1.4.2"));
            let again = at + 2 * SECOND + back_off;
            at += 3 * SECOND;
            while at < again.min(until) {
                all.push(occurrence(at, &node, &web, "Warning", "BackOff", message.clone()));
                at += 10 * SECOND + dice.below(5 * SECOND);
            }
            at = again;
            back_off = (2 * back_off).min(5 * MINUTE);
        }
    }
    all
}

/// Pods that are not ready: half report the varying output of a script, half that of an HTTP server.
pub(crate) fn failing_probes(dice: &mut Dice, namespace: &str, pods: u64, until: Millis) -> Vec<Occurrence> {
    let mut all = Vec::new();
    for number in 0..pods {
        let (pod, node) = (dice.pod(namespace, "orders-7b9c6f8d5f"), kubelet(number % 5));
        let app = container(&pod, "orders");
        let mut at = dice.below(10 * SECOND);
        while at < until {
            let said = match (number % 2, dice.below(4)) {
                (0, _) => format!("queue lag {} ms, limit is 1000 ms", 1000 + dice.below(9_000_000)),
                (_, 0) => "HTTP probe failed with statuscode: 503".to_owned(),
                (_, 1) => format!(
                    "Get \"http://10.244.{0}.{number}:8080/ready\": dial tcp 10.244.{0}.{number}:8080: connect: \
                     connection refused",
                    number % 5
                ),
                _ => format!(
                    "Get \"http://10.244.{}.{number}:8080/ready\": context deadline exceeded \
                     (Client.Timeout exceeded while awaiting headers)",
                    number % 5
                ),
            };
            all.push(occurrence(
                at,
                &node,
                &app,
                "Warning",
                "Unhealthy",
                format!("Readiness probe failed: {said}"),
            ));
            at += 10 * SECOND;
        }
    }
    all
}

/// Unschedulable pods; the scheduler retries each, and reports what the nodes lack.
pub(crate) fn failed_scheduling(
    dice: &mut Dice,
    namespace: &str,
    pods: u64,
    until: Millis,
) -> Vec<Occurrence> {
    let mut all = Vec::new();
    for _ in 0..pods {
        let pod = dice.pod(namespace, "train-29");
        let mut at = dice.below(30 * SECOND);
        while at < until {
            let full = 8 + dice.below(5);
            let message = format!(
                "0/40 nodes are available: {full} Insufficient cpu, {} node(s) had untolerated taint(s). preemption: \
                 0/40 nodes are available: {full} No preemption victims found for incoming pod, {} Preemption is not \
                 helpful for scheduling.",
                40 - full,
                40 - full
            );
            all.push(occurrence(at, &scheduler(), &pod, "Warning", "FailedScheduling", message));
            at += 2 * MINUTE + dice.below(3 * MINUTE);
        }
    }
    all
}

/// `CronJob`s that run every `every` minutes and keep three Jobs.
pub(crate) fn cron_jobs(
    dice: &mut Dice,
    namespace: &str,
    names: u64,
    every: u64,
    minutes: u64,
) -> Vec<Occurrence> {
    let (cron, jobs) = (controller("cronjob-controller"), controller("job-controller"));
    let mut all = Vec::new();
    for number in 0..names {
        let name = format!("report-{number:02}");
        let cron_job = object("batch/v1", "CronJob", namespace, &name, &dice.uid());
        for minute in (0..minutes).step_by(usize::try_from(every).unwrap()) {
            let at = minute * MINUTE + 120 * number;
            let job_at = |minute| format!("{name}-{}", 29_540_640 + minute);
            let job = object("batch/v1", "Job", namespace, &job_at(minute), &dice.uid());
            let pod = dice.pod(namespace, &job.name);
            let node = kubelet(dice.below(5));
            let created = format!("Created job {}", job.name);
            all.push(occurrence(at, &cron, &cron_job, "Normal", "SuccessfulCreate", created));
            let created = format!("Created pod: {}", pod.name);
            all.push(occurrence(at + 30, &jobs, &job, "Normal", "SuccessfulCreate", created));
            let assigned = format!("Successfully assigned {namespace}/{} to {}", pod.name, node.instance);
            all.push(occurrence(at + 40, &scheduler(), &pod, "Normal", "Scheduled", assigned));
            all.extend(start(at + 900, &node, &container(&pod, "job"), "registry.example.com/jobs:7"));
            let done = at + 5 * SECOND + dice.below(20 * SECOND);
            all.push(occurrence(done, &jobs, &job, "Normal", "Completed", "Job completed"));
            let saw = format!("Saw completed job: {}, condition: Complete", job.name);
            all.push(occurrence(done + 10, &cron, &cron_job, "Normal", "SawCompletedJob", saw));
            if minute >= 3 * every {
                let deleted = format!("Deleted job {}", job_at(minute - 3 * every));
                all.push(occurrence(done + 30, &cron, &cron_job, "Normal", "SuccessfulDelete", deleted));
            }
        }
    }
    all
}

/// A rollout of a Deployment with `a_second` pods per second.
pub(crate) fn rollout(dice: &mut Dice, namespace: &str, pods: u64, a_second: u64) -> Vec<Occurrence> {
    let (replica_sets, image) = (controller("replicaset-controller"), "registry.example.com/shop/web:1.5.0");
    let old = object("apps/v1", "ReplicaSet", namespace, "web-6d4cf56db6", &dice.uid());
    let new = object("apps/v1", "ReplicaSet", namespace, "web-86b7cdd9c4", &dice.uid());
    let mut all = Vec::new();
    for number in 0..pods {
        let at = number * SECOND / a_second;
        let (born, dies) = (dice.pod(namespace, &new.name), dice.pod(namespace, &old.name));
        let (node, other) = (kubelet(dice.below(100)), kubelet(dice.below(100)));
        let created = format!("Created pod: {}", born.name);
        all.push(occurrence(at, &replica_sets, &new, "Normal", "SuccessfulCreate", created));
        let assigned = format!("Successfully assigned {namespace}/{} to {}", born.name, node.instance);
        all.push(occurrence(at + 20, &scheduler(), &born, "Normal", "Scheduled", assigned));
        let started = at + 800 + dice.below(SECOND);
        all.extend(start(started, &node, &container(&born, "web"), image));
        let deleted = format!("Deleted pod: {}", dies.name);
        all.push(occurrence(started + 500, &replica_sets, &old, "Normal", "SuccessfulDelete", deleted));
        let web = container(&dies, "web");
        all.push(occurrence(started + 520, &other, &web, "Normal", "Killing", "Stopping container web"));
    }
    all
}

/// A tenant's controller reports each of its objects, ten per second; one in ten fails. Two of its pods crash.
pub(crate) fn noisy_tenant(dice: &mut Dice, namespace: &str, seconds: u64) -> Vec<Occurrence> {
    let importer = Emitter {
        recorder: Recorder::New,
        user: format!("system:serviceaccount:{namespace}:importer"),
        component: "example.com/importer".to_owned(),
        instance: "example.com/importer-importer-0".to_owned(),
    };
    let mut all = crash_loops(dice, namespace, 2, seconds * SECOND);
    for number in 0..10 * seconds {
        let import =
            object("example.com/v1", "Import", namespace, &format!("import-{number:06}"), &dice.uid());
        let at = number * SECOND / 10 + dice.below(90);
        all.push(if dice.below(10) == 0 {
            let message = format!("row {}: column price is empty", dice.below(100_000));
            occurrence(at, &importer, &import, "Warning", "ImportFailed", message)
        } else {
            occurrence(
                at,
                &importer,
                &import,
                "Normal",
                "Imported",
                format!("imported {} rows", dice.below(100_000)),
            )
        });
    }
    all
}

/// kube-system: a node with too many nameservers, an unready DNS pod, leader elections.
pub(crate) fn kube_system(dice: &mut Dice, until: Millis) -> Vec<Occurrence> {
    let mut all = Vec::new();
    for number in 0..10 {
        let (pod, node) = (dice.pod("kube-system", "kube-proxy"), kubelet(number));
        let mut at = dice.below(MINUTE);
        while at < until {
            let message = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver \
                           line is: 10.0.0.2 10.0.0.3 10.0.0.4";
            all.push(occurrence(at, &node, &pod, "Warning", "DNSConfigForming", message));
            at += MINUTE + dice.below(30 * SECOND);
        }
    }
    for number in 0..2 {
        let pod = dice.pod("kube-system", "coredns-674b8bbfcf");
        for second in (0..until / SECOND).step_by(10) {
            let message = "Readiness probe failed: HTTP probe failed with statuscode: 503";
            let about = container(&pod, "coredns");
            all.push(occurrence(second * SECOND, &kubelet(number), &about, "Warning", "Unhealthy", message));
        }
    }
    for (number, component) in (1..).zip(["kube-scheduler", "kube-controller-manager"]) {
        let lease = object("coordination.k8s.io/v1", "Lease", "kube-system", component, &dice.uid());
        for minute in (0..until / MINUTE).step_by(20) {
            let message = format!("control-plane-{number}_{} became leader", dice.uid());
            let by = Emitter { user: format!("system:{component}"), ..controller(component) };
            all.push(occurrence(minute * MINUTE + number, &by, &lease, "Normal", "LeaderElection", message));
        }
    }
    all
}

/// Nodes that run out of memory and become unreachable, and crashing pods in `default`. Events about a Node are
/// stored in `default`.
pub(crate) fn nodes_in_trouble(dice: &mut Dice, nodes: u64, until: Millis) -> Vec<Occurrence> {
    let mut all = crash_loops(dice, "default", 5, until);
    for number in 0..nodes {
        let kubelet = kubelet(number);
        let name = kubelet.instance.clone();
        let node = object("v1", "Node", "", &name, &name);
        let mut at = dice.below(MINUTE);
        while at < until {
            let victim =
                format!("System OOM encountered, victim process: java, pid: {}", 2000 + dice.below(60_000));
            all.push(occurrence(at, &kubelet, &node, "Warning", "SystemOOM", victim));
            at += 20 * SECOND + dice.below(2 * MINUTE);
        }
        let mut at = 5 * MINUTE + dice.below(5 * MINUTE);
        while at < until {
            for (reason, after) in [("NodeNotReady", 0), ("NodeReady", 50 * SECOND)] {
                let status = format!("Node {name} status is now: {reason}");
                all.push(occurrence(
                    at + after,
                    &controller("node-controller"),
                    &node,
                    "Normal",
                    reason,
                    status,
                ));
            }
            at += 4 * MINUTE + dice.below(4 * MINUTE);
        }
    }
    all.retain(|occurrence| occurrence.at < until);
    all
}

/// Flux's kustomize-controller reports each reconciliation of each Kustomization, with its duration.
pub(crate) fn flux_reconciliations(
    dice: &mut Dice,
    namespace: &str,
    objects: u64,
    hours: u64,
) -> Vec<Occurrence> {
    let controller = Emitter {
        user: format!("system:serviceaccount:{namespace}:kustomize-controller"),
        ..controller("kustomize-controller")
    };
    let mut all = Vec::new();
    for number in 0..objects {
        let about = object(
            "kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
            namespace,
            &format!("apps-{number}"),
            &dice.uid(),
        );
        let mut at = dice.below(10 * MINUTE);
        while at < hours * 60 * MINUTE {
            let took = 200 + dice.below(3_000);
            let took = if took < 1_000 {
                format!("{took}ms")
            } else {
                format!("{}.{:03}s", took / 1_000, took % 1_000)
            };
            let message = format!("Reconciliation finished in {took}, next run in 10m0s");
            all.push(occurrence(at, &controller, &about, "Normal", "ReconciliationSucceeded", message));
            at += 10 * MINUTE + dice.below(5 * SECOND);
        }
    }
    all
}

/// Argo CD's application controller reports each change of the health of an Application and each sync, with the commit.
/// Half of the Applications change between two states, because something else changes their objects.
pub(crate) fn argo_cd(dice: &mut Dice, namespace: &str, applications: u64, until: Millis) -> Vec<Occurrence> {
    let controller = Emitter {
        recorder: Recorder::Creates,
        user: format!("system:serviceaccount:{namespace}:argocd-application-controller"),
        ..controller("argocd-application-controller")
    };
    let mut all = Vec::new();
    for number in 0..applications {
        let name = format!("team-{number}");
        let application = object("argoproj.io/v1alpha1", "Application", namespace, &name, &dice.uid());
        let mut report = |at, reason, message| {
            all.push(occurrence(at, &controller, &application, "Normal", reason, message));
        };
        let mut at = dice.below(10 * MINUTE);
        while at < until {
            let commit = format!("{:016x}{:016x}{:08x}", dice.next(), dice.next(), dice.next() as u32);
            report(at, "OperationStarted", format!("Initiated automated sync to '{commit}'"));
            let end = at + 5 * SECOND + dice.below(20 * SECOND);
            report(end, "OperationCompleted", format!("Sync operation to {commit} succeeded"));
            at += 20 * MINUTE + dice.below(20 * MINUTE);
        }
        let mut at = dice.below(MINUTE);
        while at < until && number % 2 == 0 {
            for (one, other, after) in
                [("Healthy", "Progressing", 0), ("Progressing", "Healthy", 20 * SECOND)]
            {
                report(at + after, "ResourceUpdated", format!("Updated health status: {one} -> {other}"));
            }
            at += MINUTE + dice.below(MINUTE);
        }
    }
    all.retain(|occurrence| occurrence.at < until);
    all
}

/// Karpenter examines nodes that a pod keeps from being disrupted, and reports it for the Node and its NodeClaim, at most
/// every two minutes each. Each pod ends after some time, and another one blocks the node: of a Deployment, or of a
/// StatefulSet.
pub(crate) fn karpenter(dice: &mut Dice, nodes: u64, until: Millis) -> Vec<Occurrence> {
    let karpenter =
        Emitter { user: "system:serviceaccount:kube-system:karpenter".to_owned(), ..controller("karpenter") };
    let mut all = Vec::new();
    for number in 0..nodes {
        let claim = format!("default-{}", dice.letters());
        let about = [
            object("v1", "Node", "", &format!("ip-10-0-{number}-17.example.internal"), &dice.uid()),
            object("karpenter.sh/v1", "NodeClaim", "", &claim, &dice.uid()),
        ];
        let (mut at, mut another, mut pod) = (dice.below(2 * MINUTE), 0, String::new());
        while at < until {
            if at >= another {
                let of_deployment = dice.below(2) == 0;
                let ordinal = dice.below(20);
                let owned = dice.pod("batch", "encoder-7d9f6c5b8d").name;
                pod = if of_deployment { owned } else { format!("queue-{ordinal}") };
                another = at + 10 * MINUTE + dice.below(20 * MINUTE);
            }
            let message = format!("Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=batch/{pod})");
            all.extend(
                about
                    .iter()
                    .map(|about| occurrence(at, &karpenter, about, "Normal", "DisruptionBlocked", &*message)),
            );
            at += 2 * MINUTE + dice.below(10 * SECOND);
        }
    }
    all
}

/// An operator with the Java operator SDK reports each reconciliation of its objects with its duration; one in ten fails.
pub(crate) fn java_operator(
    dice: &mut Dice,
    namespace: &str,
    objects: u64,
    until: Millis,
) -> Vec<Occurrence> {
    let operator = Emitter {
        recorder: Recorder::Adds,
        user: format!("system:serviceaccount:{namespace}:database-operator"),
        ..controller("databasereconciler")
    };
    let mut all = Vec::new();
    for number in 0..objects {
        let about =
            object("example.com/v1", "Database", namespace, &format!("database-{number}"), &dice.uid());
        let mut at = dice.below(MINUTE);
        while at < until {
            let took = 100 + dice.below(400);
            let (event_type, reason, message) = if number % 10 == 3 {
                ("Warning", "ReconcileFailed", format!("Connection refused after {took}ms"))
            } else {
                ("Normal", "Reconciled", format!("Reconciled in {took}ms"))
            };
            all.push(occurrence(at, &operator, &about, event_type, reason, message));
            at += MINUTE + dice.below(5 * SECOND);
        }
    }
    all
}

/// A zone fails several times: the node controller reports each pod of each of its nodes.
pub(crate) fn node_not_ready(dice: &mut Dice, nodes: u64, pods: u64, failures: u64) -> Vec<Occurrence> {
    let mut all = Vec::new();
    let pods: Vec<_> = (0..nodes * pods).map(|_| dice.pod("shop", "web-5d9c7b8f64")).collect();
    for failure in 0..failures {
        for (number, pod) in (0..).zip(&pods) {
            let at = failure * 12 * MINUTE + number * SECOND / 20;
            all.push(occurrence(
                at,
                &controller("node-controller"),
                pod,
                "Warning",
                "NodeNotReady",
                "Node is not ready",
            ));
        }
    }
    all
}

/// Pods start; the image of one in ten cannot be pulled.
pub(crate) fn image_pulls(dice: &mut Dice, namespace: &str, pods: u64) -> Vec<Occurrence> {
    let mut all = Vec::new();
    for number in 0..pods {
        let (pod, node) = (dice.pod(namespace, "web-86b7cdd9c4"), kubelet(number % 5));
        let (web, at) = (container(&pod, "web"), number * SECOND);
        if number % 10 == 3 {
            let message = "Failed to pull image \"registry.example.com/shop/web:1.5.1\": not found";
            all.push(occurrence(at, &node, &web, "Warning", "Failed", message));
        } else {
            all.extend(start(at, &node, &web, "registry.example.com/shop/web:1.5.0"));
        }
    }
    all
}
