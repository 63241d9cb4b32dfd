package emitters;

import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.EventBuilder;
import io.fabric8.kubernetes.api.model.EventList;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectReference;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/** Events of core/v1: {@code count} and {@code lastTimestamp}. */
final class CoreEvents extends EventWriter<Event> {
  CoreEvents(Options options, NonNamespaceOperation<Event, EventList, Resource<Event>> events) {
    super(options, events);
  }

  @Override
  protected Event first(ObjectMeta metadata, ObjectReference regarding, String message) {
    String now = now();
    return new EventBuilder()
        .withMetadata(metadata)
        .withInvolvedObject(regarding)
        .withType(options.type())
        .withReason(options.reason())
        .withMessage(message)
        .withCount(1)
        .withFirstTimestamp(now)
        .withLastTimestamp(now)
        .withNewSource()
        .withComponent(options.program())
        .endSource()
        .build();
  }

  @Override
  protected Event repeated(Event event) {
    return new EventBuilder(event)
        .withCount(event.getCount() + 1)
        .withLastTimestamp(now())
        .build();
  }

  private static String now() {
    return Instant.now().truncatedTo(ChronoUnit.SECONDS).toString();
  }
}
