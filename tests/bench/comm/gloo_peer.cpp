#include "gloo_peer.h"

#include <memory>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace dtrain {

std::vector<GlooAlgorithm> connect_gloo(const std::string& folder, int rank, int ranks) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);

  const auto by_options = [context](gloo::AllreduceOptions::Algorithm algorithm) {
    return [context, algorithm](float* values, std::size_t count) {
      gloo::AllreduceOptions options(context);
      options.setAlgorithm(algorithm);
      options.setOutput(values, count);
      options.setReduceFunction([](void* c, const void* a, const void* b, std::size_t n) {
        gloo::sum<float>(c, a, b, n);
      });
      gloo::allreduce(options);
    };
  };
  // These keep buffers for one size and address: made once for each.
  const auto made_once = [context]<typename Algorithm>(std::type_identity<Algorithm>) {
    return [context, made = std::shared_ptr<Algorithm>(), of = std::pair<float*, std::size_t>()](
               float* values, std::size_t count) mutable {
      if (!made || of != std::pair(values, count)) {
        made.reset();
        made = std::make_shared<Algorithm>(context, std::vector<float*>{values},
                                           static_cast<int>(count));
        of = {values, count};
      }
      made->run();
    };
  };
  return {
      {"ring", by_options(gloo::AllreduceOptions::Algorithm::RING)},
      {"bcube", by_options(gloo::AllreduceOptions::Algorithm::BCUBE)},
      {"ring chunked", made_once(std::type_identity<gloo::AllreduceRingChunked<float>>())},
      {"halving doubling", made_once(std::type_identity<gloo::AllreduceHalvingDoubling<float>>())},
  };
}

}  // namespace dtrain
