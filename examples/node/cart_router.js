// The cart router in JavaScript, on the protocol's .proto files alone: carts over the threshold go to review, the others to valid.
import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const protos = fileURLToPath(new URL('../../flowv1', import.meta.url));
const { Discovery, Streamlet } = grpc.loadPackageDefinition(loader.loadSync(
  ['ankka/flow/v1/discovery.proto', 'ankka/flow/v1/streamlet.proto'],
  { includeDirs: [protos], keepCase: true, longs: String }, // a number of JavaScript does not hold every batch_id
)).ankka.flow.v1;

const contract = { format: 'json', schema_name: 'cart-events.v1', fingerprint: 'nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM=' };
const spec = {
  protocol_version: '1.0',
  sdk: { name: 'none', version: '1' },
  streamlet: {
    name: 'cart-router',
    inlets: [{ name: 'in', contract }],
    outlets: [{ name: 'review', contract }, { name: 'valid', contract }],
    config_parameters: [{ key: 'review-threshold', type: 'INTEGER', default_value: '100' }],
  },
};

// The outlet of a record's value, or nothing for what is no cart.
function outletFor(value, threshold) {
  try {
    const { total } = JSON.parse(value);
    return typeof total === 'number' ? (total > threshold ? 'review' : 'valid') : undefined;
  } catch {
    return undefined;
  }
}

// One conversation: Start, then batches. Each is answered by its emits and an ack.
function run(stream) {
  let threshold;
  stream.on('data', ({ start, batch }) => {
    if (start) threshold = JSON.parse(start.config_json)['review-threshold'];
    if (!batch) return; // a stop is followed by the end
    for (const { record } of batch.records) {
      const outlet = outletFor(record.value, threshold);
      if (outlet) stream.write({ emit: { batch_id: batch.batch_id, outlet, record } }); // no emit for a record skips it
    }
    stream.write({ ack: { batch_id: batch.batch_id } });
  });
  stream.on('end', () => stream.end());
  stream.on('error', (error) => console.error(error.message)); // the sidecar is gone; it will come back
}

const server = new grpc.Server();
server.addService(Discovery.service, {
  discover: (_call, answer) => answer(null, spec),
  reportError: ({ request }, answer) => {
    for (const { message } of request.problems) console.error('refused:', message);
    answer(null, {});
  },
});
server.addService(Streamlet.service, { run });
server.bindAsync(`127.0.0.1:${process.env.FLOW_PROCESS_PORT ?? 9010}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
