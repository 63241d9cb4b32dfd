package emitters;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.ObjectReference;
import io.fabric8.kubernetes.api.model.ObjectReferenceBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;

/**
 * Writes one Event per occurrence with the typed calls of fabric8's client. The client has no
 * recorder, so that each program brings such a class. The two APIs have the same calls and different
 * models ({@link CoreEvents}, {@link NewEvents}).
 */
abstract class EventWriter<E extends HasMetadata> {
  protected final Options options;
  private final NonNamespaceOperation<E, ?, Resource<E>> events;

  /** The Events of {@code apply} by name, with the program's own count. */
  private final Map<String, E> applied = new HashMap<>();

  EventWriter(Options options, NonNamespaceOperation<E, ?, Resource<E>> events) {
    this.options = options;
    this.events = events;
  }

  static EventWriter<?> of(Options options, KubernetesClient client) {
    return options.api().equals("core")
        ? new CoreEvents(options, client.v1().events().inNamespace(options.namespace()))
        : new NewEvents(options, client.events().v1().events().inNamespace(options.namespace()));
  }

  /** An Event with one occurrence. */
  protected abstract E first(ObjectMeta metadata, ObjectReference regarding, String message);

  /** The same Event with one occurrence more. */
  protected abstract E repeated(E event);

  /** Writes an occurrence that regards a ConfigMap, in the way of {@code --write}. */
  void write(String uid, int occurrence) {
    String message = options.messageOf(occurrence);
    // The identity of JOSDK's recorder and of Flink's: object, type, reason and message.
    int identity = Objects.hash(uid, options.type(), options.reason(), message);
    String name = options.object() + "." + Integer.toHexString(identity);
    E first = first(metadata(name), regarding(uid), message);
    Resource<E> named = events.withName(name);
    switch (options.write()) {
      case "create" -> events.resource(generated(first)).create();
      case "edit" -> {
        if (named.get() == null) {
          events.resource(first).create();
        } else {
          named.edit(this::repeated);
        }
      }
      case "patch" -> {
        E stored = named.get();
        if (stored == null) {
          events.resource(first).create();
        } else {
          named.patch(repeated(stored));
        }
      }
      case "replace" -> createOrReplace(first, named.get());
      case "apply" -> {
        E next = applied.containsKey(name) ? repeated(applied.get(name)) : first;
        applied.put(name, next);
        events.resource(next).serverSideApply();
      }
      default -> throw new IllegalArgumentException(options.write());
    }
  }

  // The documentation prefers createOr(); existing programs have this call, such as the operator of
  // Apache Flink.
  @SuppressWarnings("deprecation")
  private void createOrReplace(E first, E stored) {
    events.resource(stored == null ? first : repeated(stored)).createOrReplace();
  }

  private E generated(E event) {
    event.getMetadata().setName(null);
    event.getMetadata().setGenerateName(options.object() + "-");
    return event;
  }

  private ObjectMeta metadata(String name) {
    return new ObjectMetaBuilder().withName(name).withNamespace(options.namespace()).build();
  }

  private ObjectReference regarding(String uid) {
    return new ObjectReferenceBuilder()
        .withApiVersion("v1")
        .withKind("ConfigMap")
        .withNamespace(options.namespace())
        .withName(options.object())
        .withUid(uid)
        .build();
  }
}
