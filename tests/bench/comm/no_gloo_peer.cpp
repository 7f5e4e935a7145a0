#include "gloo_peer.h"

namespace dtrain {

std::vector<GlooAlgorithm> connect_gloo(const std::string&, int, int) {
  return {};
}

}  // namespace dtrain
