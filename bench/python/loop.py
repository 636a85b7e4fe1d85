"""What a user would write instead of a streamlet: consume, produce, wait for the broker, commit.

usage: loop.py SERVER IN OUT BATCH
"""

import sys

from confluent_kafka import Consumer, Producer

server, source, target, most = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": server, "group.id": "loop-" + target, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
producer = Producer({"bootstrap.servers": server, "enable.idempotence": True, "linger.ms": 0})
consumer.subscribe([source])


def confirmed(error, _message):
    if error is not None:
        raise SystemExit(str(error))


while True:
    batch = consumer.consume(most, timeout=0.1)
    for message in batch:
        if message.error():
            raise SystemExit(str(message.error()))
        while True:
            try:
                producer.produce(target, message.value(), message.key(), on_delivery=confirmed)
                break
            except BufferError:
                producer.poll(0.1)
    if batch:
        producer.flush()
        consumer.commit(asynchronous=False)
