// Samples that a run left out under `on_bad_sample: skip`, over all its ranks.
//
//   SkippedSamples mine;
//   mine.add("train", sample);
//   mine.gather_to_json(comm);   // {"count": 1, "samples": [{"data": "train", "id": 7, ...}]}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "dtrain/data/loader.h"
#include "dtrain/parallel/comm/communicator.h"

namespace dtrain {

class SkippedSamples {
 public:
  // Reasons are kept for this many; the others are only counted.
  static constexpr std::size_t most_listed = 100;

  // `data`: "train" or "validation". A sample counts once, however often it is met.
  void add(const std::string& data, const SkippedSample& sample);
  bool empty() const { return all_.empty(); }

  // Collective; the same on all ranks, and at any number of them: {count, samples: [{data, id,
  // reason}]}, the samples in order and at most `most_listed`.
  nlohmann::ordered_json gather_to_json(Communicator& comm) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;  // data, id
  void list(const Key& key, const std::string& reason);

  std::set<Key> all_;
  std::map<Key, std::string> listed_;  // the first ones, with their reasons
};

}  // namespace dtrain
